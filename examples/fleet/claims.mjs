// Who runs a job: one small record for each in Redis, changed by one script at a time, so that each step below is one instant.
//
//   host, run    who has it. There until a host has proven that nothing of that run exists
//   epoch        how often it was given to somebody
//   fenced       somebody else wants it: the run may not begin any more, and is to be ended
//   cancelled    likewise, and nobody is to get it
//   outcome      how it ended. From then on nobody gets it

const KEEP_SECONDS = 7 * 24 * 3600
const CANCELLED = '{"state":"cancelled"}'

const COMMON = `
  local job, id = KEYS[1], ARGV[1]
  local function is(field) return redis.call('HGET', job, field) end
  local function dead(host) return redis.call('SISMEMBER', '{fleet}:dead', host) == 1 end
  local function settle(outcome)
    redis.call('HSET', job, 'outcome', outcome)
    redis.call('EXPIRE', job, ${KEEP_SECONDS})
    return outcome
  end
  -- Has the host's reaper end the run. A bell has one stroke, however often it is pulled while nobody listens.
  local function ask(host)
    redis.call('SADD', '{fleet}:ends:' .. host, id)
    redis.call('DEL', '{fleet}:bell:' .. host)
    redis.call('RPUSH', '{fleet}:bell:' .. host, '1')
  end
  local function vacate()
    redis.call('SREM', '{fleet}:ends:' .. is('host'), id)
    redis.call('HDEL', job, 'host', 'run', 'fenced')
  end
`

const SCRIPTS = {
  take: `
    local host, run = ARGV[2], ARGV[3]
    if is('outcome') then return {'settled', is('outcome')} end
    -- A command may be sent twice if the connection breaks before the answer is there.
    if is('run') == run and not is('fenced') then return {'granted', is('epoch')} end
    if is('run') and not dead(is('host')) then
      redis.call('HSET', job, 'fenced', '1')
      ask(is('host'))
      return {'held', is('host')}
    end
    if is('run') then vacate() end
    if is('cancelled') then return {'settled', settle('${CANCELLED}')} end
    if dead(host) then return {'dead', host} end
    redis.call('HSET', job, 'host', host, 'run', run)
    return {'granted', tostring(redis.call('HINCRBY', job, 'epoch', 1))}`,

  holds: `
    if is('run') ~= ARGV[2] or is('fenced') or is('cancelled') or dead(is('host')) then return 0 end
    return 1`,

  leave: `
    if is('run') == ARGV[2] then
      vacate()
      if is('cancelled') then settle('${CANCELLED}') elseif ARGV[3] ~= '' then settle(ARGV[3]) end
    end
    return is('outcome')`,

  cancel: `
    if is('outcome') then return {'settled', is('outcome')} end
    redis.call('HSET', job, 'cancelled', '1')
    if not is('run') or dead(is('host')) then return {'settled', settle('${CANCELLED}')} end
    ask(is('host'))
    return {'ending', is('host')}`,
}

export class Claims {
  #redis

  constructor(redis) {
    this.#redis = redis
    for (const [name, lua] of Object.entries(SCRIPTS))
      redis.defineCommand(`fleet_${name}`, { numberOfKeys: 1, lua: COMMON + lua })
  }

  #call(name, id, ...args) {
    return this.#redis[`fleet_${name}`](`{fleet}:job:${id}`, id, ...args)
  }

  /**
   * A run of this host wants the job.
   * - `granted`: it has it, and `epoch` is higher than that of anybody before.
   * - `held`: another has it, or may still have it. That one is fenced now, and its host is asked to end it.
   * - `settled`: there is nothing to be done any more, see `outcome`.
   * - `dead`: this host was declared dead.
   */
  async take(id, host, run) {
    const [verdict, more] = await this.#call('take', id, host, run)
    if (verdict === 'granted') return { verdict, epoch: Number(more) }
    if (verdict === 'settled') return { verdict, outcome: JSON.parse(more) }
    return { verdict, host: more }
  }

  /** Whether the run may begin, or go on. */
  async holds(id, run) {
    return (await this.#call('holds', id, run)) === 1
  }

  /**
   * Nothing of the run exists, says its host: the job is free, or has this outcome. Returns the outcome it has, if any. Of a run that
   * has lost the job before, nothing is changed.
   */
  async leave(id, run, outcome) {
    const settled = await this.#call('leave', id, run, outcome ? JSON.stringify(outcome) : '')
    return settled === null ? undefined : JSON.parse(settled)
  }

  /** Nobody is to run it any more. `ending`: somebody does, and its host is asked to end it. */
  async cancel(id) {
    const [verdict, more] = await this.#call('cancel', id)
    return verdict === 'settled' ? { verdict, outcome: JSON.parse(more) } : { verdict, host: more }
  }

  async read(id) {
    const { outcome, ...record } = await this.#redis.hgetall(`{fleet}:job:${id}`)
    return { ...record, outcome: outcome && JSON.parse(outcome) }
  }

  // ---- hosts ------------------------------------------------------------------------------------------------------------

  /** The jobs whose runs this host is asked to end. */
  asked(host) {
    return this.#redis.smembers(`{fleet}:ends:${host}`)
  }

  /** Resolves when it is asked, or after so many seconds. */
  async bell(host, seconds) {
    await this.#redis.blpop(`{fleet}:bell:${host}`, seconds)
  }

  forget(host, id) {
    return this.#redis.srem(`{fleet}:ends:${host}`, id)
  }

  /** An operator vouches that nothing runs there any more. */
  async declareDead(host) {
    await this.#redis.sadd('{fleet}:dead', host)
  }

  async isDead(host) {
    return (await this.#redis.sismember('{fleet}:dead', host)) === 1
  }
}
