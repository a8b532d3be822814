// The options of survey, and its members as a tree. Pure.

import type { SurveyedProcess, SurveyOptions } from '../../index.js'
import { checkFilter } from '../run/run-filters.js'
import { SURVEY } from '../util/option-keys.js'
import { readOptions } from '../util/read-options.js'
import { flag } from '../util/validation.js'

export function readSurveyOptions(options: SurveyOptions | undefined) {
  const { tree, ...filter } = readOptions(options, SURVEY, { of: 'survey', name: 'filter', strict: true })
  return { ...checkFilter(filter), tree: flag(tree, 'filter.tree') }
}

/**
 * Returns the processes whose parent is not one of them, each with its children.
 *
 * A process that lost its parent is at the top: its parent is the keeper now.
 */
export function nested(members: readonly SurveyedProcess[]): SurveyedProcess[] {
  const nodes = new Map(
    members.map((member) => [member.pid, { ...member, children: [] as SurveyedProcess[] }]),
  )
  const top: SurveyedProcess[] = []
  for (const node of nodes.values()) {
    const parent = node.ppid === node.pid ? undefined : nodes.get(node.ppid)
    // A parent is older than its child. Otherwise another process has its PID now.
    if (parent && parent.ageMs >= node.ageMs) parent.children.push(node)
    else top.push(node)
  }
  return top
}
