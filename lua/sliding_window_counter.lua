-- Sliding window counters, as src/algorithm/sliding_window_counter.rs has them. Stored:
-- "<start ms>:<previous>:<current>".

local function sliding_window_counter()
  local self = {}

  function self.load(key)
    local start, previous, current = numbers(redis.pcall('GET', key), '^(%d+):(%d+):(%d+)$')
    if start and start <= MAX_HITS / 1000 then
      return { start = start * 1000, previous = previous, current = current }
    end
  end

  -- floor(part*length/count), at most `length`.
  local function share(part, count, length)
    if part >= count then return length end
    return (muldiv(part, length, count))
  end

  -- µs until the weighed hits are at most `room`.
  local function wait(room, previous, current, left, length)
    if current <= room then return left - share(room - current, previous, length) end
    return left + length - share(room, current, length)
  end

  function self.check(limit, state, hits, charged)
    local length, capacity, time = limit.length, limit.capacity, now
    if state and state.start > time then time = state.start end
    local start, stop = window_of(limit, time)
    local previous, current = 0, 0
    if state then
      if state.start == start then
        previous, current = state.previous, state.current
      elseif state.start + length == start then
        previous = state.current
      end
    end
    local left = less(stop, time)
    local used = math.min(muldiv_up(previous, left, length) + current, MAX_HITS)
    local allowed = hits < 0 or used + hits <= capacity
    local after_previous, after = previous, current
    if hits < 0 then
      after = less(current, -hits)
      after_previous = less(previous, less(-hits, current))
    elseif capacity > 0 and (allowed or charged) then
      after = math.min(current + hits, MAX_HITS)
    end
    if after ~= current or after_previous ~= previous then
      state = {
        start = start,
        previous = after_previous,
        current = after,
        expires = start + 2 * length,
      }
    end
    local remaining = less(capacity, muldiv_up(after_previous, left, length) + after)
    local reset, retry = left, -1
    if after > 0 then reset = left + length end
    if not allowed and hits <= capacity and capacity > 0 then
      retry = wait(capacity - hits, after_previous, after, left, length)
    end
    return allowed, used, remaining, reset, retry, state
  end

  function self.text(state)
    return string.format('%d:%d:%d', state.start / 1000, state.previous, state.current)
  end

  return self
end
