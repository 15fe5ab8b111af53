-- Fixed windows, as src/algorithm/fixed_window.rs has them.

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

local function fixed_window()
  local self = {}

  -- Calendars have no even windows to number: theirs are stored as "<start ms>:<count>".
  function self.load(key, limit)
    if not limit.bounds then
      local start, count = read_window(key, limit.length)
      return { start = start, count = count, length = limit.length }
    end
    local start, count = numbers(redis.pcall('GET', key), '^(%d+):(%d+)$')
    if start and start <= MAX_HITS / 1000 then return { start = start * 1000, count = count } end
    return { start = 0, count = 0 }
  end

  function self.check(limit, state, hits, charged)
    local time = math.max(now, state.start)
    local start, stop = window_of(limit, time)
    local used = 0
    if state.start == start then used = state.count end
    local capacity = limit.capacity
    local allowed, count = charge(capacity, used, hits, charged)
    if count ~= used then
      state = { start = start, count = count, expires = stop, length = state.length }
    end
    local reset, retry = math.max(less(stop, time), 1), -1
    if not allowed and hits <= capacity and capacity > 0 then retry = reset end
    return allowed, used, less(capacity, count), reset, retry, state
  end

  function self.text(state)
    if state.length then return window_text(state.start, state.count, state.length) end
    return string.format('%d:%d', state.start / 1000, state.count)
  end

  return self
end
