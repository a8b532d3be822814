// Claims on jobs: one record in Redis for each job. Each operation below is one Lua script, so it
// is atomic.
//
//   host, run    the run that holds the job. They stay until the host proves that the run's tree is gone
//   epoch        how often the job was granted
//   fenced       another run wants the job: this run must not start, and its host must terminate it
//   cancelled    like fenced, and no run may get the job again
//   outcome      how the job ended. After that, no run may get it

import type { Redis } from 'ioredis'

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
  -- Asks the host's reaper to terminate the run. DEL before RPUSH keeps at most one pending
  -- wake-up.
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
    -- The client sends a command again if the connection breaks before the answer arrives.
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

/** How a job ended. */
export interface Outcome {
  state: 'completed' | 'cancelled'
  output?: string
}

export type Verdict =
  | { verdict: 'granted'; epoch: number }
  | { verdict: 'settled'; outcome: Outcome }
  | { verdict: 'held'; host: string }
  | { verdict: 'dead'; host: string }

export type Cancelled = { verdict: 'settled'; outcome: Outcome } | { verdict: 'ending'; host: string }

/** The record of a job. */
export interface JobRecord {
  host?: string
  run?: string
  epoch?: string
  fenced?: string
  cancelled?: string
  outcome?: Outcome | undefined
}

type Script = (key: string, ...args: string[]) => Promise<unknown>

export class Claims {
  readonly #redis: Redis

  constructor(redis: Redis) {
    this.#redis = redis
    for (const [name, lua] of Object.entries(SCRIPTS))
      redis.defineCommand(`fleet_${name}`, { numberOfKeys: 1, lua: COMMON + lua })
  }

  /** Calls a script. ioredis adds a method for each command that was defined. */
  async #call(name: keyof typeof SCRIPTS, id: string, ...args: string[]): Promise<unknown> {
    const scripts = this.#redis as unknown as Record<string, Script>
    return await scripts[`fleet_${name}`]?.(`{fleet}:job:${id}`, id, ...args)
  }

  /**
   * Claims the job for a run of this host. The verdicts:
   * - `granted`: the run holds the job. `epoch` is higher than that of every earlier run.
   * - `held`: another run holds the job. It is fenced now, and its host is asked to terminate it.
   * - `settled`: the job has already ended, see `outcome`.
   * - `dead`: this host was declared dead.
   */
  async take(id: string, host: string, run: string): Promise<Verdict> {
    const [verdict, more] = (await this.#call('take', id, host, run)) as [Verdict['verdict'], string]
    if (verdict === 'granted') return { verdict, epoch: Number(more) }
    if (verdict === 'settled') return { verdict, outcome: JSON.parse(more) }
    return { verdict, host: more }
  }

  /** Whether the run holds the job and may start or continue. */
  async holds(id: string, run: string): Promise<boolean> {
    return (await this.#call('holds', id, run)) === 1
  }

  /**
   * Releases the job, because the host has proven that the run's tree is gone. Sets the outcome, if
   * given. Returns the job's outcome, if any. Changes nothing if the run does not hold the job any
   * more.
   */
  async leave(id: string, run: string, outcome?: Outcome): Promise<Outcome | undefined> {
    const text = outcome ? JSON.stringify(outcome) : ''
    const settled = (await this.#call('leave', id, run, text)) as string | null
    return settled === null ? undefined : JSON.parse(settled)
  }

  /**
   * Cancels the job. `ending`: a run still holds it, and its host is asked to terminate that run.
   */
  async cancel(id: string): Promise<Cancelled> {
    const [verdict, more] = (await this.#call('cancel', id)) as [Cancelled['verdict'], string]
    return verdict === 'settled' ? { verdict, outcome: JSON.parse(more) } : { verdict, host: more }
  }

  async read(id: string): Promise<JobRecord> {
    const { outcome, ...record } = await this.#redis.hgetall(`{fleet}:job:${id}`)
    return { ...record, outcome: outcome ? JSON.parse(outcome) : undefined }
  }

  // ---- hosts ------------------------------------------------------------------------------------------------------------

  /** The ids of the jobs whose runs this host must terminate. */
  asked(host: string): Promise<string[]> {
    return this.#redis.smembers(`{fleet}:ends:${host}`)
  }

  /** Waits for the next request to this host, at most for the given seconds. */
  async bell(host: string, seconds: number): Promise<void> {
    await this.#redis.blpop(`{fleet}:bell:${host}`, seconds)
  }

  forget(host: string, id: string): Promise<number> {
    return this.#redis.srem(`{fleet}:ends:${host}`, id)
  }

  /** Records an operator's statement that no process of the fleet runs on the host any more. */
  async declareDead(host: string): Promise<void> {
    await this.#redis.sadd('{fleet}:dead', host)
  }

  async isDead(host: string): Promise<boolean> {
    return (await this.#redis.sismember('{fleet}:dead', host)) === 1
  }
}
