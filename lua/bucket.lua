-- Token buckets and GCRA, as src/algorithm/bucket.rs has them. Stored: "<last µs>:<level>:<f>",
-- where a level of whole hits and f/W of a hit is in the bucket.

local function bucket()
  local self = {}

  function self.load(key, limit)
    local last, level, fraction = numbers(redis.pcall('GET', key), '^(%d+):(%d+):(%d+)$')
    if last and fraction < limit.length then
      return { last = last, level = level, fraction = fraction }
    end
  end

  -- What is left of a level after `elapsed` µs.
  local function drain(level, fraction, elapsed, limit)
    if elapsed / limit.length * limit.amount > level + 2 then return 0, 0 end
    local whole, part = muldiv(elapsed, limit.amount, limit.length)
    level, fraction = level - whole, fraction - part
    if fraction < 0 then level, fraction = level - 1, fraction + limit.length end
    if level < 0 then return 0, 0 end
    return level, fraction
  end

  -- µs in which a level drains, rounded up.
  local function time_of(level, fraction, limit)
    local whole, part = muldiv(level, limit.length, limit.amount)
    return whole + muldiv_up(part + fraction, 1, limit.amount)
  end

  -- Whole hits, a begun one counted.
  local function hits_of(level, fraction)
    if fraction > 0 then return level + 1 end
    return level
  end

  function self.check(limit, state, hits, charged)
    local capacity, time = limit.capacity, now
    local level, fraction = 0, 0
    if state then
      if state.last > time then time = state.last end
      level, fraction = state.level, state.fraction
      if level >= 2 * capacity then level, fraction = 2 * capacity, 0 end
      level, fraction = drain(level, fraction, time - state.last, limit)
    end
    local used = hits_of(level, fraction)
    local allowed = hits < 0 or used + hits <= capacity
    local after, after_fraction = level, fraction
    if hits < 0 then
      if -hits > level then
        after, after_fraction = 0, 0
      else
        after = level + hits
      end
    elseif hits > 0 and (allowed or charged) then
      after = level + hits
      if after >= 2 * capacity then after, after_fraction = 2 * capacity, 0 end
    end
    local reset, retry = limit.length, -1
    if limit.amount > 0 then reset = math.max(time_of(after, after_fraction, limit), 1) end
    if not allowed and hits <= capacity and limit.amount > 0 then
      retry = time_of(after + hits - capacity, after_fraction, limit)
    end
    if after ~= level or after_fraction ~= fraction then
      state = { last = time, level = after, fraction = after_fraction, expires = time + reset }
    end
    return allowed, used, less(capacity, hits_of(after, after_fraction)), reset, retry, state
  end

  function self.text(state)
    return string.format('%d:%d:%d', state.last, state.level, state.fraction)
  end

  return self
end
