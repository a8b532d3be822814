import { SHELLS } from '../help.js'
import type { Context, Outcome } from '../terminal.js'

export function completion({ request, print }: Context): Outcome {
  const [shell = ''] = request.words
  if (!Object.hasOwn(SHELLS, shell)) throw request.error(`"${shell}" is none of bash, zsh and fish`)
  print(...SHELLS[shell as keyof typeof SHELLS]())
  return 0
}
