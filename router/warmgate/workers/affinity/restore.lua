-- Write a process's own bindings back after an outage. Whoever comes first wins; the others learn what is there.
--
-- KEYS: as in bind.lua
-- ARGV: most sessions, then session, binding, ms left, "1" when it was made or moved while the store was out
-- Returns: for every session "=" and the binding that was there, "+" and the one written, or "" where there was no room

local bindings, expiries, loads = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function worker_of(binding) return string.match(binding, '^[^\n]*') end
local function moves_of(binding) return tonumber(string.match(binding, '%d+$')) end

local function add(worker, by)
  if redis.call('HINCRBY', loads, worker, by) <= 0 then redis.call('HDEL', loads, worker) end
end

local result, longest = {}, 0
for i = 2, #ARGV, 4 do
  local session, own, left, unsynced = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3] == '1'
  local held = redis.call('HGET', bindings, session)
  local ends = tonumber(redis.call('ZSCORE', expiries, session) or 0)
  local live = held and ends > now
  if live and not (unsynced and moves_of(own) > moves_of(held)) then
    result[#result + 1] = '=' .. held
    if now + left > ends then redis.call('ZADD', expiries, now + left, session) end
    longest = math.max(longest, left)
  elseif held or redis.call('ZCARD', expiries) < limit then
    if held then add(worker_of(held), -1) end
    redis.call('HSET', bindings, session, own)
    add(worker_of(own), 1)
    redis.call('ZADD', expiries, math.max(now + left, live and ends or 0), session)
    longest = math.max(longest, left)
    result[#result + 1] = '+' .. own
  else
    result[#result + 1] = ''
  end
end
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < longest then redis.call('PEXPIRE', key, 2 * longest) end
end
return result
