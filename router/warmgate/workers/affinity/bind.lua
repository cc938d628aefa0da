-- Bind a session to a worker, or read its binding; one atomic step. The rules are those of memory.py.
--
-- KEYS: bindings  hash  session -> "worker\nmoved_from\nreason\nmoves"
--       expiries  zset  session -> when it ends, ms of the server's clock
--       loads     hash  worker  -> sessions
-- ARGV: session, ttl ms, most sessions, load bound,
--       hint: this process's own binding, or "" ; hint wins: "1" when it was made while the store was out,
--       then worker, weight, stance of every candidate, the session's favourite first
-- Returns: { fresh, evicted, binding }

local bindings, expiries, loads = KEYS[1], KEYS[2], KEYS[3]
local session, ttl, limit, bound = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local hint, hint_wins = ARGV[5], ARGV[6] == '1'

local PURGE = 16 -- ended sessions forgotten a call: each call adds at most one, so the backlog shrinks
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function unpacked(binding)
  local worker, from, reason, moves = string.match(binding, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n(%d+)$')
  return worker, from, reason, tonumber(moves)
end

local function add(worker, by)
  if redis.call('HINCRBY', loads, worker, by) <= 0 then redis.call('HDEL', loads, worker) end
end

local function forget(id)
  local binding = redis.call('HGET', bindings, id)
  if binding then
    redis.call('HDEL', bindings, id)
    add((unpacked(binding)), -1)
  end
  redis.call('ZREM', expiries, id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, PURGE)) do forget(id) end

local held = redis.call('HGET', bindings, session)
if held and tonumber(redis.call('ZSCORE', expiries, session) or 0) <= now then
  forget(session)
  held = false
end

local known = held
if hint ~= '' then
  local _, _, _, hint_moves = unpacked(hint)
  if not held or (hint_wins and hint_moves > select(4, unpacked(held))) then known = hint end
end

local fresh, binding = 0, known
if known then
  local worker, _, _, moves = unpacked(known)
  local leave = 'removed'
  for i = 7, #ARGV, 3 do
    if ARGV[i] == worker then
      leave = ARGV[i + 2]
      break
    end
  end
  if leave ~= 'open' and leave ~= 'keep' then
    fresh = 1
    binding = { worker, leave, moves + 1 }
  end
else
  fresh = 1
  binding = { '', '', 0 }
end

if fresh == 1 then
  if held then
    forget(session)
    held = false
  end
  local order, total, weights = {}, 1, 0
  for i = 7, #ARGV, 3 do
    if ARGV[i + 2] == 'open' then
      local weight, load = tonumber(ARGV[i + 1]), tonumber(redis.call('HGET', loads, ARGV[i]) or 0)
      order[#order + 1] = { ARGV[i], weight, load }
      total = total + load
      weights = weights + weight
    end
  end
  local chosen = order[1]
  for _, candidate in ipairs(order) do
    if candidate[3] < math.ceil(bound * total * candidate[2] / weights) then
      chosen = candidate
      break
    end
  end
  local reason = binding[2]
  if reason == '' then reason = chosen == order[1] and 'hashed' or 'bounded' end
  binding = chosen[1] .. '\n' .. binding[1] .. '\n' .. reason .. '\n' .. string.format('%d', binding[3])
end

local evicted = 0
if binding ~= held then
  if held then forget(session) end
  while redis.call('ZCARD', expiries) >= limit do
    local oldest = redis.call('ZRANGE', expiries, 0, 0)[1]
    forget(oldest)
    evicted = evicted + 1
  end
  redis.call('HSET', bindings, session, binding)
  add((unpacked(binding)), 1)
end
redis.call('ZADD', expiries, now + ttl, session)
for _, key in ipairs(KEYS) do -- all of it goes when nobody calls any more
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, 2 * ttl) end
end
return { fresh, evicted, binding }
