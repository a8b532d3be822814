// The checks of binaries for other platforms, which use the output of readelf.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { checkAddon, checkKeeper, checkSize } from '../../scripts/targets/check.mjs'
import { byVersion, parseReadelf } from '../../scripts/targets/elf.mjs'
import { linuxTargets } from '../../scripts/targets/list.mjs'

const of = (name) => linuxTargets.find(({ platform }) => platform === name)
const addon = (facts) => ({ machine: 'X86-64', needed: ['libc.so.6'], glibc: '2.17', ...facts })

test('parseReadelf reads machine, interpreter, libraries and glibc version', () => {
  const text = `ELF Header:
  Class:                             ELF64
  Machine:                           Advanced Micro Devices X86-64
Program Headers:
      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]
Dynamic section at offset 0x1 contains 2 entries:
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libdl.so.2]
Version needs section '.gnu.version_r' contains 1 entry:
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 3
  0x0030:   Name: GLIBC_2.9  Flags: none  Version: 2
`
  assert.deepEqual(parseReadelf(text), {
    machine: 'X86-64',
    interpreter: '/lib64/ld-linux-x86-64.so.2',
    needed: ['libc.so.6', 'libdl.so.2'],
    glibc: '2.17',
  })
  const bare = parseReadelf(
    '  Machine:                           AArch64\nThere is no dynamic section in this file.\n',
  )
  assert.deepEqual(bare, { machine: 'AArch64', interpreter: undefined, needed: [], glibc: undefined })
})

test('byVersion compares versions as numbers, not as text', () => {
  assert.deepEqual(['2.17', '2.2.5', '2.9', '2.2'].toSorted(byVersion), ['2.2', '2.2.5', '2.9', '2.17'])
})

describe('an addon', () => {
  const cases = [
    ['linux-x64-gnu', {}, undefined],
    ['linux-x64-gnu', { glibc: undefined }, undefined],
    ['linux-x64-gnu', { glibc: '2.28' }, /needs glibc 2\.28/],
    ['linux-x64-gnu', { glibc: '2.9' }, undefined],
    ['linux-x64-gnu', { machine: 'AArch64' }, /is for AArch64/],
    ['linux-x64-gnu', { needed: ['libc.so.6', 'libssl.so.3'] }, /needs libssl\.so\.3/],
    ['linux-x64-musl', { needed: ['libc.so'], glibc: undefined }, undefined],
    ['linux-x64-musl', {}, /libc\.so\.6, which is not a part of musl/],
    ['linux-x64-musl', { needed: ['libc.so'] }, /symbols of glibc/],
    ['linux-arm64-gnu', { machine: 'AArch64', needed: ['libc.so.6', 'ld-linux-aarch64.so.1'] }, undefined],
    ['linux-arm64-musl', { needed: ['libc.so'], glibc: undefined }, /is for X86-64/],
  ]
  for (const [platform, facts, complaint] of cases)
    test(`for ${platform} with ${JSON.stringify(facts)} ${complaint ? 'is refused' : 'is accepted'}`, () => {
      const complaints = checkAddon(of(platform), addon(facts))
      if (complaint) assert.match(complaints.join('\n'), complaint)
      else assert.deepEqual(complaints, [])
    })
})

test('a keeper must be static for every libc', () => {
  const fine = { machine: 'AArch64', needed: [], interpreter: undefined }
  for (const name of ['linux-arm64-gnu', 'linux-arm64-musl']) {
    assert.deepEqual(checkKeeper(of(name), fine), [])
    assert.match(
      checkKeeper(of(name), { ...fine, interpreter: '/lib/ld-musl-aarch64.so.1' })[0],
      /not static/,
    )
    assert.match(checkKeeper(of(name), { ...fine, needed: ['libc.so'] })[0], /not static/)
    assert.match(checkKeeper(of(name), { ...fine, machine: 'X86-64' })[0], /is for X86-64/)
  }
})

test('the installed size has a limit', () => {
  assert.deepEqual(checkSize(2_500_000), [])
  assert.match(checkSize(2_500_001)[0], /2\.50 MB are installed/)
})
