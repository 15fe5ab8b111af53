-- Decides a plain batch, the common kind: every call is one check of a fixed window that has a
-- length. Does what fixed_window.lua and call.lua do, without their tables.
--
-- ARGV: now, TTL jitter, 'plain'; the number of limits, then each as capacity and window in µs;
-- then per check the index of its key, that of its limit, hits and 1 if charged though refused.

-- The stored window, "<start ms>:<count>"; one from the beginning of time if there is none.
local function read_window(key)
  local start, count = numbers(redis.pcall('GET', key), '^(%d+):(%d+)$')
  if start and start <= MAX_HITS / 1000 then return start * 1000, count end
  return 0, 0
end

local function window_text(start, count)
  return string.format('%d:%d', start / 1000, count)
end

-- Whether `hits` pass, and the count after them.
local function charge(capacity, used, hits, charged)
  if hits < 0 then return true, less(used, -hits) end
  local sum = used + hits
  local allowed = sum <= capacity
  if capacity > 0 and (allowed or charged) then
    if sum > MAX_HITS then sum = MAX_HITS end
    return allowed, sum
  end
  return allowed, used
end

if ARGV[3] == 'plain' then
  local tonumber, ARGV, KEYS = tonumber, ARGV, KEYS
  local starts, counts, stops, reply, size = {}, {}, {}, {}, 0
  for at = 5 + 2 * tonumber(ARGV[4]), #ARGV, 4 do
    local key, slot = tonumber(ARGV[at]), 3 + 2 * tonumber(ARGV[at + 1])
    local hits, charged = tonumber(ARGV[at + 2]), ARGV[at + 3] == '1'
    local capacity, length = tonumber(ARGV[slot]), tonumber(ARGV[slot + 1])
    local start, used = starts[key], counts[key]
    if not start then
      start, used = read_window(KEYS[key])
      starts[key], counts[key] = start, used
    end
    local time = now
    if start > time then time = start end
    local current = time - time % length
    if start ~= current then used = 0 end
    local allowed, count = charge(capacity, used, hits, charged)
    local stop = current + length
    if count ~= used then starts[key], counts[key], stops[key] = current, count, stop end
    reply[size + 1] = 0
    reply[size + 2] = used
    reply[size + 3] = 0
    reply[size + 4] = stop - time
    reply[size + 5] = -1
    if allowed then
      reply[size + 1] = 1
    elseif hits <= capacity and capacity > 0 then
      reply[size + 5] = stop - time
    end
    if count < capacity then reply[size + 3] = capacity - count end
    size = size + 5
  end
  local last, life
  for key = 1, #KEYS do
    local stop = stops[key]
    if stop then
      if stop ~= last then last, life = stop, ttl(stop) end
      redis.call('SET', KEYS[key], window_text(starts[key], counts[key]), 'PX', life)
    end
  end
  return reply
end
