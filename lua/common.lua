-- The time, and what every algorithm needs. No number here leaves ±2^53, so none is rounded.

local MAX_HITS = 2^53 - 1

-- µs. ARGV[1] is 0 where Redis is to tell the time.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The rest of the life of a key whose state matters until `expires`, in ms.
local function ttl(expires)
  return string.format('%d', math.max(math.ceil((expires - now) / 1000), 1) + ARGV[2])
end

-- a - b, at least 0.
local function less(a, b)
  if a > b then return a - b end
  return 0
end

-- The whole numbers of `text` as `pattern` captures them; nothing unless each is exact.
local function numbers(text, pattern)
  if type(text) ~= 'string' then return end
  local a, b, c = string.match(text, pattern)
  a, b = tonumber(a), tonumber(b)
  if not a or a > MAX_HITS or b > MAX_HITS then return end
  if c then
    c = tonumber(c)
    if c > MAX_HITS then return end
  end
  return a, b, c
end
