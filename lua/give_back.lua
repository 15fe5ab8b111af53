-- Gives unspent hits back to fixed windows, each to the very window that counted them: where that
-- is over or gone, nothing is given back, however late the command comes.
--
-- ARGV: now, TTL jitter, 'give_back'; then per key the hits, and start and length of their window
-- in µs.
-- Reply: per key the hits given back.
if ARGV[3] == 'give_back' then
  local reply, at = {}, 4
  for key = 1, #KEYS do
    local hits, start, length = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    at = at + 3
    -- Of a window that is over, `stored` is 0, which is the start of none that is not.
    local stored, count = read_window(KEYS[key], length)
    local back = 0
    if stored == start and now < start + length then back = math.min(hits, count) end
    if back > 0 then
      if back == count then
        redis.call('DEL', KEYS[key])
      else
        redis.call('DECRBY', KEYS[key], string.format('%d', back))
      end
    end
    reply[key] = back
  end
  return reply
end
