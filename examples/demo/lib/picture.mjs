/** Draws the current process tree from /proc. */

import { noteFor, rank } from './cast.mjs'
import { isAlive, look, nameOf } from './proc.mjs'
import { clip, dim, green, red, width } from './terminal.mjs'

/**
 * Lines that show the bot, its helpers and the live members, each below its current parent. A
 * member that does not descend from the bot any more is drawn below the process that adopted it.
 */
export function picture(stage, { survivors = false } = {}) {
  const rows = roots(stage).flatMap((node) => draw(node))
  const treeWidth = Math.max(...rows.map((row) => row.tree.length))
  return rows.map(({ tree, node }) => {
    const style = { bot: green, member: survivors ? red : plain }[node.kind] ?? dim
    const pid = String(node.pid).padStart(7)
    const room = width() - treeWidth - pid.length - 6
    const note = survivors && node.kind === 'member' ? red('still runs') : dim(clip(node.note ?? '', room))
    const gap = ' '.repeat(treeWidth - tree.length)
    return `  ${dim(tree.slice(0, -node.name.length))}${style(node.name)}${gap}${dim(pid)}  ${note}`.trimEnd()
  })
}

function roots(stage) {
  const nodes = new Map()
  const botNote = stage.botIsAlive ? '' : 'killed'
  nodes.set(stage.bot.pid, { ...stage.bot, kind: 'bot', name: 'bot', note: botNote })
  for (const helper of stage.helpers.filter(isAlive)) {
    nodes.set(helper.pid, { ...helper, kind: 'helper', note: helperNote(helper) })
  }
  for (const member of stage.alive()) {
    nodes.set(member.pid, { ...member, kind: 'member', name: nameOf(member.pid), note: noteFor(member.name) })
  }
  const adopters = new Map()
  const top = []
  for (const node of nodes.values()) {
    node.children ??= []
    if (node.kind === 'bot') {
      top.push(node)
      continue
    }
    const parentPid = look(node.pid)?.parent
    const parent = nodes.get(parentPid) ?? adopters.get(parentPid) ?? adopter(parentPid)
    if (parent.kind === 'adopter') adopters.set(parentPid, parent)
    parent.children ??= []
    parent.children.push(node)
  }
  return [...top, ...adopters.values()]
}

function helperNote({ name, keepsTheTree }) {
  if (keepsTheTree) return "the run's keeper"
  return {
    'owned-zygote': 'forks the keepers',
    'owned-keeper': 'waits for the next run',
    'owned-stub': 'exec stub: will exec that command',
  }[name]
}

function adopter(pid) {
  return {
    pid,
    kind: 'adopter',
    name: pid === 1 ? 'init' : nameOf(pid),
    note: 'adopted them: no link to the bot',
  }
}

/**
 * `{ tree, node }` for a node and all its descendants. `tree` is the left part of the line, up to
 * the name.
 */
function draw(node, first = '', rest = '') {
  const children = node.children.toSorted((a, b) => rank(a.name) - rank(b.name))
  const below = children.flatMap((child, index) => {
    const isLast = index === children.length - 1
    return draw(child, `${rest}${isLast ? '└─ ' : '├─ '}`, `${rest}${isLast ? '   ' : '│  '}`)
  })
  return [{ tree: first + node.name, node }, ...below]
}

function plain(text) {
  return text
}
