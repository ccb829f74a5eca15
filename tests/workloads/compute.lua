-- Compute in Lua: a sieve, string building and matching, tables of tables, closures and coroutines.
-- Runs on Lua 5.4 and LuaJIT alike. The argument says how often.
local rounds = tonumber(arg[1]) or 1

local function sieve(limit)
  local composite, primes = {}, 0
  for i = 2, limit do
    if not composite[i] then
      primes = primes + 1
      for j = i * i, limit, i do composite[j] = true end
    end
  end
  return primes
end

local function words(count)
  local parts = {}
  for i = 1, count do parts[#parts + 1] = string.format("%x", i * 2654435 % 65536) end
  local text, found = table.concat(parts, " "), 0
  for word in text:gmatch("%x+") do found = found + #word end
  return found
end

local function tree(depth)
  if depth == 0 then return { 1 } end
  return { tree(depth - 1), tree(depth - 1) }
end

local function leaves(node)
  if not node[2] then return node[1] end
  return leaves(node[1]) + leaves(node[2])
end

local function generated(count)
  local sum = 0
  local next_number = coroutine.wrap(function()
    for i = 1, count do coroutine.yield(i % 7) end
  end)
  for _ = 1, count do sum = sum + next_number() end
  return sum
end

local total = 0
for round = 1, rounds do
  local ok, message = pcall(error, { round })
  assert(not ok and message[1] == round)
  total = total + sieve(20000) + words(3000) + leaves(tree(10)) + generated(3000)
end
print(string.format("%d", total))
