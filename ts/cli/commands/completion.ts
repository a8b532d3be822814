import type { Context, Outcome } from '../context.js'
import { SHELLS } from '../help.js'

export function completion({ request, print }: Context): Outcome {
  const [shell = ''] = request.words
  if (!Object.hasOwn(SHELLS, shell)) throw request.error(`unknown shell "${shell}". Pass bash, zsh or fish`)
  print(...SHELLS[shell as keyof typeof SHELLS]())
  return 0
}
