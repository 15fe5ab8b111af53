-- Decides a batch of calls, as src/algorithm/call.rs does, and writes each counter back once.
--
-- ARGV: now in µs, TTL jitter in ms, 'mixed'; the number of limits, then each as code, amount,
-- capacity and window in µs, where a window of 0 is followed by the four bounds of a calendar;
-- then calls to the end, each as the number of its checks and per check the index of its key, that
-- of its limit, hits (negative: refund) and mode: 2*effect + (1 if always charged), with an effect
-- of 0 deny, 1 observe, 2 + g quota of group g.
-- Reply: allowed, used, remaining, reset and retry (-1: none) of every check, in one flat array.

local make = { fixed_window, sliding_window_log, sliding_window_counter, bucket }
local made = {}
local function algorithm(code)
  if not made[code] then made[code] = make[code]() end
  return made[code]
end

local limits, at = {}, 5
for index = 1, tonumber(ARGV[4]) do
  local limit = {
    algorithm = algorithm(tonumber(ARGV[at])),
    amount = tonumber(ARGV[at + 1]),
    capacity = tonumber(ARGV[at + 2]),
    length = tonumber(ARGV[at + 3]),
  }
  at = at + 4
  if limit.length == 0 then
    limit.bounds = {}
    for i = 1, 4 do limit.bounds[i] = tonumber(ARGV[at + i - 1]) end
    at = at + 4
  end
  limits[index] = limit
end

-- By key index: what was stored, what is to be, and the algorithm that reads it.
local stored, states, kinds = {}, {}, {}
local reply, size = {}, 0

local function load(key, limit)
  local kind = limit.algorithm
  if kinds[key] ~= kind then
    stored[key] = kind.load(KEYS[key], limit)
    states[key], kinds[key] = stored[key], kind
  end
  return states[key]
end

local function check(key, limit, hits, charged)
  local state = load(key, limit)
  local allowed, used, remaining, reset, retry
  allowed, used, remaining, reset, retry, state = limit.algorithm.check(limit, state, hits, charged)
  states[key] = state
  return allowed, used, remaining, reset, retry
end

local function answer(allowed, used, remaining, reset, retry)
  reply[size + 1] = allowed and 1 or 0
  reply[size + 2] = used
  reply[size + 3] = remaining
  reply[size + 4] = reset
  reply[size + 5] = retry
  size = size + 5
  return allowed
end

-- Decides the `count` checks at ARGV[at] together.
local function decide(count)
  local first, before, touched = size, {}, {}
  local over = {} -- by quota group: whether a check of it was refused
  local denied = false
  for i = 0, count - 1 do
    local key, mode = tonumber(ARGV[at + 4 * i]), tonumber(ARGV[at + 4 * i + 3])
    local limit, hits = limits[tonumber(ARGV[at + 4 * i + 1])], tonumber(ARGV[at + 4 * i + 2])
    if not touched[key] then touched[key], before[key] = true, load(key, limit) end
    local allowed = answer(check(key, limit, hits, mode > 0))
    if mode < 2 then
      denied = denied or not allowed
    elseif mode >= 4 then
      local group = mode - mode % 2
      over[group] = over[group] or not allowed
    end
  end
  local all_over = next(over) ~= nil
  for _, refused in pairs(over) do all_over = all_over and refused end
  if not denied and not all_over then return end
  for key in pairs(touched) do states[key] = before[key] end
  for i = 0, count - 1 do
    local key, mode = tonumber(ARGV[at + 4 * i]), tonumber(ARGV[at + 4 * i + 3])
    local limit, hits = limits[tonumber(ARGV[at + 4 * i + 1])], tonumber(ARGV[at + 4 * i + 2])
    local verdict = first + 5 * i
    if mode % 2 == 1 or hits < 0 then
      check(key, limit, hits, true)
    elseif reply[verdict + 1] == 0 then
      reply[verdict + 3] = less(limit.capacity, reply[verdict + 2])
    end
  end
end

while ARGV[at] do
  local count = tonumber(ARGV[at])
  at = at + 1
  if count == 1 then
    local mode = tonumber(ARGV[at + 3])
    local key, limit = tonumber(ARGV[at]), limits[tonumber(ARGV[at + 1])]
    answer(check(key, limit, tonumber(ARGV[at + 2]), mode % 2 == 1 or mode == 2))
  else
    decide(count)
  end
  at = at + 4 * count
end

for key = 1, #KEYS do
  local state = states[key]
  if state ~= stored[key] then
    if kinds[key].save then
      kinds[key].save(KEYS[key], state)
    else
      redis.call('SET', KEYS[key], kinds[key].text(state), 'PX', ttl(state.expires))
    end
  end
end
return reply
