-- Sliding window logs, as src/algorithm/sliding_window_log.rs has them. Stored: a list, oldest
-- first, of "<t µs>:<hits>:<running total modulo 2^48>". The running total makes the hits between
-- two entries a subtraction, so every search is by halves and no call reads the whole list.
--
-- A log in hand is the stored entries `skip`, … (`kept` of them; all if nil) and then `added`.
-- `base` is the running total before its first entry. Logs are never changed, only replaced.

local function sliding_window_log()
  local self = {}
  local MODULUS = 2^48

  local function parse(text)
    local at, hits, total = numbers(text, '^(%d+):(%d+):(%d+)$')
    if at and total < MODULUS then return { at = at, hits = hits, total = total } end
  end

  -- An unused log in place of whatever is stored.
  local function empty(list)
    return { list = list, skip = 0, kept = 0, base = 0, added = {}, expires = 0 }
  end

  local function stored_count(log)
    if log.kept then return log.kept end
    local list = log.list
    if not list.size then list.size = redis.call('LLEN', list.key) end
    return list.size - log.skip
  end

  -- The entry at `index` from 0. One that does not parse marks the list as broken.
  local function entry(log, index)
    local list = log.list
    if index > 0 or log.kept then
      local count = stored_count(log)
      if index >= count then return log.added[index - count + 1] end
    end
    local at = log.skip + index
    if not list[at] then
      list[at] = parse(redis.call('LINDEX', list.key, at))
      if not list[at] then
        list.broken = true
        return { at = 0, hits = 0, total = 0 }
      end
    end
    return list[at]
  end

  -- Hits up to and with `one`.
  local function sum_to(log, one)
    return (one.total - log.base) % MODULUS
  end

  -- The first index whose entry is `reached`, as all after it are; near the front in few steps.
  local function find(log, reached)
    local size = stored_count(log) + #log.added
    local low, high, step = -1, 0, 1
    while high < size - 1 and not reached(entry(log, high)) do
      low, high, step = high, math.min(high + step, size - 1), step * 2
    end
    while high - low > 1 do
      local middle = math.floor((low + high) / 2)
      if reached(entry(log, middle)) then high = middle else low = middle end
    end
    return high
  end

  local function read(list, limit)
    local key = list.key
    local newest = redis.pcall('LINDEX', key, -1)
    if not newest then
      list.size = 0
      return empty(list)
    end
    local last, first = parse(newest), nil
    if last then first = parse(redis.call('LINDEX', key, 0)) end
    if not first then return empty(list) end
    list[0] = first
    local start = math.max(now, last.at) - limit.length
    if last.at <= start then return empty(list) end
    local log = { list = list, skip = 0, base = first.total - first.hits, last = last, added = {} }
    if first.at <= start then
      local skip = find(log, function(one) return one.at > start end)
      log.base = entry(log, skip - 1).total
      log.skip = skip
      if list.broken then return empty(list) end
    end
    return log
  end

  function self.load(key, limit)
    local list = { key = key }
    local log = read(list, limit)
    list.last = log.last
    return log
  end

  -- `log` with another end: of its stored entries `kept` are, then come the `added`, up to `last`.
  local function ending(log, kept, added, last, length)
    return {
      list = log.list,
      skip = log.skip,
      kept = kept,
      base = log.base,
      last = last,
      added = added,
      expires = last.at + length,
    }
  end

  local function push(log, time, hits, length)
    local added, kept, last = { unpack(log.added) }, log.kept, log.last
    if last and last.at == time then
      last = { at = time, hits = last.hits + hits, total = (last.total + hits) % MODULUS }
      if #added > 0 then
        added[#added] = last
      else
        added[1], kept = last, stored_count(log) - 1
      end
    else
      local total = last and last.total or log.base
      last = { at = time, hits = hits, total = (total + hits) % MODULUS }
      added[#added + 1] = last
    end
    return ending(log, kept, added, last, length)
  end

  local function take_back(log, hits, length)
    local total = log.last and sum_to(log, log.last) or 0
    if total == 0 then return log end
    if hits >= total then return empty(log.list) end
    local keep = total - hits
    local index = find(log, function(one) return sum_to(log, one) >= keep end)
    local last = entry(log, index)
    local over = sum_to(log, last) - keep
    local added, kept, count = {}, log.kept, stored_count(log)
    if over > 0 then
      last = { at = last.at, hits = last.hits - over, total = (last.total - over) % MODULUS }
    end
    if index < count then
      kept = index + 1
      if over > 0 then added[1], kept = last, index end
    else
      for i = 1, index - count do added[i] = log.added[i] end
      added[#added + 1] = last
    end
    return ending(log, kept, added, last, length)
  end

  local function attempt(limit, log, hits, charged)
    local length, capacity, time = limit.length, limit.capacity, now
    local used = 0
    if log.last then
      used = sum_to(log, log.last)
      if log.last.at > time then time = log.last.at end
    end
    local allowed = hits < 0 or used + hits <= capacity
    if hits < 0 then
      log = take_back(log, -hits, length)
    elseif allowed or charged then
      local fits = math.min(hits, less(2 * capacity, used))
      if fits > 0 then log = push(log, time, fits, length) end
    end
    local last, total, reset, retry = log.last, 0, length, -1
    if last then
      total, reset = sum_to(log, last), last.at + length - time
      if not allowed and hits <= capacity then
        local leaving = total - (capacity - hits)
        local one = entry(log, 0)
        if sum_to(log, one) < leaving then
          one = entry(log, find(log, function(other) return sum_to(log, other) >= leaving end))
        end
        retry = one.at + length - time
      end
    end
    return allowed, used, less(capacity, total), reset, retry, log
  end

  function self.check(limit, log, hits, charged)
    local list = log.list
    if not list.broken then
      local allowed, used, remaining, reset, retry, after = attempt(limit, log, hits, charged)
      if not list.broken then return allowed, used, remaining, reset, retry, after end
    end
    if log.kept ~= 0 then log = empty(list) end
    return attempt(limit, log, hits, charged)
  end

  -- Entries only come and go at the end, so the last one tells whether anything is to be written.
  local function is_unchanged(log)
    local was, is = log.list.last, log.last
    if not was or not is then return was == is end
    return was.at == is.at and was.hits == is.hits and was.total == is.total
  end

  function self.save(key, log)
    if is_unchanged(log) then return end
    if log.kept == 0 then
      if log.list.size ~= 0 then redis.call('DEL', key) end
    elseif log.kept or log.skip > 0 then
      redis.call('LTRIM', key, log.skip, log.kept and log.skip + log.kept - 1 or -1)
    end
    for _, one in ipairs(log.added) do
      redis.call('RPUSH', key, string.format('%d:%d:%d', one.at, one.hits, one.total))
    end
    if log.last then redis.call('PEXPIRE', key, ttl(log.expires)) end
  end

  return self
end
