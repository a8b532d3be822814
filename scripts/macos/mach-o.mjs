// Reads a Mach-O file: its processor, its kind, and the libraries it links.
import { readFileSync } from 'node:fs'

const MAGIC_64 = 0xfeedfacf
const PROCESSORS = new Map([
  [0x01000007, 'x64'],
  [0x0100000c, 'arm64'],
])
const KINDS = new Map([
  [2, 'executable'],
  [6, 'library'],
  [8, 'bundle'],
])
const HEADER = 32
const ID_DYLIB = 0xd
const CODE_SIGNATURE = 0x1d
const BUILD_VERSION = 0x32
// Plain, weak, re-exported, upward and lazy.
const LOADS = new Set([0xc, 0x80000018, 0x8000001f, 0x80000023, 0x20])

/** `undefined` if the file is not Mach-O. */
export function readMachO(path) {
  const bytes = readFileSync(path)
  if (bytes.length < HEADER || bytes.readUInt32LE(0) !== MAGIC_64) return undefined
  const file = {
    processor: PROCESSORS.get(bytes.readUInt32LE(4)),
    kind: KINDS.get(bytes.readUInt32LE(12)),
    name: undefined,
    libraries: [],
    oldestSystem: undefined,
    isSigned: false,
  }
  let at = HEADER
  for (let left = bytes.readUInt32LE(16); left > 0; left--) {
    const command = bytes.readUInt32LE(at)
    const size = bytes.readUInt32LE(at + 4)
    const body = bytes.subarray(at, at + size)
    if (command === ID_DYLIB) file.name = text(body)
    if (LOADS.has(command)) file.libraries.push(text(body))
    if (command === CODE_SIGNATURE) file.isSigned = true
    if (command === BUILD_VERSION) file.oldestSystem = `${body.readUInt16LE(14)}.${body[13]}`
    at += size
  }
  return file
}

/** The string at the end of a load command. The command contains its offset. */
function text(body) {
  const start = body.readUInt32LE(8)
  return body.toString('utf8', start, body.indexOf(0, start))
}
