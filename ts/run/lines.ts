// OwnedProcess.lines: reads the options, and chooses the streams.

import type { Readable } from 'node:stream'
import type { LinesOptions } from '../../index.js'
import { codedError, invalidValue } from '../util/errors.js'
import { LINES } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { LineReader } from './line-reader.js'

interface Outputs {
  readonly runId: string
  readonly stdout: Readable | null | undefined
  readonly stderr: Readable | null | undefined
}

/** Returns the lines of an output. It listens now, so that no output is lost. */
export function readLines(process: Outputs, options: LinesOptions | undefined): LineReader {
  const { stream = 'stdout' } = readOptions(options, LINES, { of: 'lines' })
  if (stream !== 'stdout' && stream !== 'stderr' && stream !== 'both')
    throw invalidValue('options.stream', stream, "must be 'stdout', 'stderr' or 'both'")
  const chosen = stream === 'both' ? [process.stdout, process.stderr] : [process[stream]]
  const streams = chosen.filter((output) => output != null)
  // Undefined instead of null: the start failed before the streams were created.
  if (streams.length === 0 && chosen.includes(null)) {
    throw codedError(
      Error,
      'ERR_OWNED_NO_OUTPUT',
      `Run "${process.runId}" has no pipe at ${stream === 'both' ? 'stdout and stderr' : stream}, so the bot cannot read its lines. ` +
        "Start it with 'pipe' there in options.stdio.",
    )
  }
  return new LineReader(streams)
}
