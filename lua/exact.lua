-- Products and quotients of integers, exact although Lua's numbers are doubles.

-- floor(a*b/c) and the remainder, for integers a < 2^53, b <= 2^51, 0 < c < 2^53 of which the
-- quotient is below 2^53. Where c > 2^51, b must be below c.
local function muldiv(a, b, c)
  local product = a * b
  if product <= MAX_HITS then
    local rest = product % c
    return (product - rest) / c, rest
  end
  if c > 2^51 then
    -- One bit of a at a time; every sum that could reach c has c taken off before it is made.
    local quotient, rest, bit = 0, 0, 1
    while bit * 2 <= a do bit = bit * 2 end
    while bit >= 1 do
      quotient = quotient * 2
      if rest >= c - rest then
        quotient, rest = quotient + 1, rest - (c - rest)
      else
        rest = rest * 2
      end
      if a >= bit then
        a = a - bit
        if rest >= c - b then
          quotient, rest = quotient + 1, rest - (c - b)
        else
          rest = rest + b
        end
      end
      bit = bit / 2
    end
    return quotient, rest
  end
  -- a = high*base + low, so that both rest*base and low*b stay below 2^52.
  local base = math.floor(2^52 / math.max(b, c))
  local low = a % base
  local quotient, rest = muldiv((a - low) / base, b, c)
  local sum = rest * base + low * b
  rest = sum % c
  return quotient * base + (sum - rest) / c, rest
end

-- ceil(a*b/c).
local function muldiv_up(a, b, c)
  local quotient, rest = muldiv(a, b, c)
  if rest > 0 then return quotient + 1 end
  return quotient
end
