-- Decides a plain batch, the common kind: all checks take hits from fixed windows that have a
-- length, deny their call and are charged if it is admitted. Does what fixed_window.lua and
-- call.lua do with one INCRBY per check, taken back where it was too much.
--
-- ARGV: now, TTL jitter, 'plain'; then runs to the end, each as the number of its calls, how often
-- each call is to be decided, its hits, the number of its checks and for each of those capacity
-- and window in µs. A call with several checks is decided once. KEYS: one per check, in order.
-- Reply: the time, then per check the hits used before it, or -1 minus those where the stored
-- window has not begun yet.

-- A window is stored as one integer: (index % WINDOWS + 1) * SPAN + count. Keys do not live long
-- enough for an index to come around.
local SPAN, WINDOWS = 2^33, 2^20 - 2

-- Start and count of the stored window; 0 and 0 if there is none, or an old one.
local function read_window(key, length)
  local text = redis.pcall('GET', key)
  local stored = type(text) == 'string' and string.find(text, '^%d+$') and tonumber(text)
  if not stored or stored < SPAN or stored > MAX_HITS then return 0, 0 end
  local mark = math.floor(stored / SPAN)
  local current = math.floor(now / length)
  local ahead = (mark - 1 - current) % WINDOWS
  if mark > WINDOWS or ahead > WINDOWS / 2 then return 0, 0 end
  return (current + ahead) * length, stored - mark * SPAN
end

local function window_text(start, count, length)
  return string.format('%d', (start / length % WINDOWS + 1) * SPAN + count)
end

-- Whether `hits` pass, and the count after them.
local function charge(capacity, used, hits, charged)
  if hits < 0 then return true, less(used, -hits) end
  local sum = used + hits
  local allowed = sum <= capacity
  if capacity > 0 and (allowed or charged) then return allowed, math.min(sum, SPAN - 1) end
  return allowed, used
end

if ARGV[3] == 'plain' then
  local tonumber, ARGV, KEYS, call, pcall = tonumber, ARGV, KEYS, redis.call, redis.pcall
  local reply, size = { now }, 1

  -- How many of `times` times `hits` fit.
  local function fitting(capacity, used, hits, times)
    if used + hits > capacity then return 0 end
    return math.min(times, math.floor((capacity - used) / hits))
  end

  -- The long way: for a window that is new, not begun, or no window at all.
  local function rewrite(key, limit, hits, times)
    local length = limit.length
    local start, used = read_window(key, length)
    local time = math.max(now, start)
    local current = time - time % length
    if start ~= current then used = 0 end
    local fits = fitting(limit.capacity, used, hits, times)
    if fits > 0 then
      local text = window_text(current, used + fits * hits, length)
      call('SET', key, text, 'PX', ttl(current + length, length))
    end
    if start > now then return used, fits, true end
    return used, fits
  end

  -- Takes `times` times `hits`, as many as fit: the hits used before, and how many times fitted.
  -- `text` is the total as text, which Redis takes as it is.
  local function take(key, limit, hits, times, text)
    local total = hits * times
    local sum = pcall('INCRBY', key, text)
    if sum == total then
      local fits = fitting(limit.capacity, 0, hits, times)
      call('SET', key, string.format('%d', limit.base + fits * hits), 'PX', limit.ttl)
      return 0, fits
    end
    if type(sum) ~= 'number' then return rewrite(key, limit, hits, times) end
    local used = sum - limit.base - total
    if used >= 0 and used + total <= limit.capacity then return used, times end
    if used >= 0 and used < SPAN then
      local fits = fitting(limit.capacity, used, hits, times)
      call('DECRBY', key, total - fits * hits)
      return used, fits
    end
    call('DECRBY', key, text)
    return rewrite(key, limit, hits, times)
  end

  local function give_back(key, hits, used)
    if call('DECRBY', key, hits) % SPAN == 0 and used == 0 then call('DEL', key) end
  end

  local key, at = 1, 4
  while ARGV[at] do
    local calls, times = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local hits, checks = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    local text = times == 1 and ARGV[at + 2] or string.format('%d', hits * times)
    at = at + 4
    local limits = {}
    for i = 1, checks do
      local length = tonumber(ARGV[at + 1])
      local start = now - now % length
      limits[i] = {
        capacity = tonumber(ARGV[at]),
        length = length,
        base = (start / length % WINDOWS + 1) * SPAN,
        ttl = ttl(start + length, length),
      }
      at = at + 2
    end
    for _ = 1, calls do
      local first, denied = size, false
      for i = 1, checks do
        local used, fits, later = take(KEYS[key], limits[i], hits, times, text)
        if fits == 0 then denied = true end
        key, size = key + 1, size + 1
        reply[size] = later and -1 - used or used
      end
      if denied and checks > 1 then
        for i = 1, checks do
          local used = reply[first + i]
          if used < 0 then used = -1 - used end
          if used + hits <= limits[i].capacity then give_back(KEYS[key - checks + i - 1], hits, used) end
        end
      end
    end
  end
  return reply
end
