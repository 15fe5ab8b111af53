-- Fixed windows, as src/algorithm/fixed_window.rs has them. Stored: "<start ms>:<count>".

-- Start and end of the aligned window that holds `time`, in µs.
local function window_of(limit, time)
  local bounds = limit.bounds
  if not bounds then
    local start = time - time % limit.length
    return start, start + limit.length
  elseif time < bounds[2] then
    return bounds[1], bounds[2]
  elseif time < bounds[3] then
    return bounds[2], bounds[3]
  end
  return bounds[3], bounds[4]
end

local function fixed_window(now)
  local self = {}

  function self.load(key)
    local start, count = numbers(redis.pcall('GET', key), '^(%d+):(%d+)$')
    if start and start <= MAX_HITS / 1000 then return { start = start * 1000, count = count } end
  end

  function self.check(limit, state, hits, charged)
    local time = now
    if state and state.start > time then time = state.start end
    local start, stop = window_of(limit, time)
    local used = 0
    if state and state.start == start then used = state.count end
    local capacity = limit.capacity
    local allowed = hits < 0 or used + hits <= capacity
    local count = used
    if hits < 0 then
      count = less(used, -hits)
    elseif capacity > 0 and (allowed or charged) then
      count = math.min(used + hits, MAX_HITS)
    end
    if count ~= used then state = { start = start, count = count, expires = stop } end
    local reset, retry = less(stop, time), -1
    if not allowed and hits <= capacity and capacity > 0 then retry = reset end
    return allowed, used, less(capacity, count), reset, retry, state
  end

  function self.text(state)
    return string.format('%.0f:%.0f', state.start / 1000, state.count)
  end

  return self
end
