-- Forget a session.
--
-- KEYS: as in bind.lua
-- ARGV: session

local binding = redis.call('HGET', KEYS[1], ARGV[1])
if binding then
  redis.call('HDEL', KEYS[1], ARGV[1])
  local worker = string.match(binding, '^[^\n]*')
  if redis.call('HINCRBY', KEYS[3], worker, -1) <= 0 then redis.call('HDEL', KEYS[3], worker) end
end
redis.call('ZREM', KEYS[2], ARGV[1])
return 0
