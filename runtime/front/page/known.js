// What the page knows of the server: the last tick, models and jobs slice by slice, and what it keeps itself of ticks gone by.

export const LANES = ['storage', 'link', 'inference', 'training'];
export const WINDOW_NS = 6e9; // rates and means are of the last so many nanoseconds
const MOST_SPANS = 6000; // a lane
const MOST_POINTS = 600; // a loss curve

// What the server said first: events.js.
export const server = { hello: null };
export const known = fresh();

function fresh() {
  return {
    tick: null, // the last one
    models: new Map(), // by place
    jobs: new Map(), // by id
    repository: [],
    spans: LANES.map(() => []),
    underWay: [],
    samples: new Map(), // of cumulative numbers, by name: [[ns, value]]
    curves: new Map(), // by job: {points: [[step, loss]], gap: steps}
    clockOffsetNs: null, // the server's clock less this page's
  };
}

// How fast a cumulative number grew lately, a second.
export function rateOf(key, nowNs, value) {
  let list = known.samples.get(key);
  if (!list) known.samples.set(key, (list = []));
  const last = list.at(-1);
  if (last && value < last[1]) list.length = 0; // it began anew
  if (!last || nowNs > last[0]) list.push([nowNs, value]);
  while (list.length > 2 && list[1][0] < nowNs - WINDOW_NS) list.shift();
  const [thenNs, then] = list[0];
  return nowNs > thenNs ? ((value - then) * 1e9) / (nowNs - thenNs) : 0;
}

// Those that this tick tells all of: what it does not name is gone.
function takeSlice(map, list, key, isInside) {
  for (const id of map.keys()) if (isInside(id)) map.delete(id);
  for (const item of list) map.set(item[key], item);
}

// At most MOST_POINTS, evenly apart over all steps that were seen: when there are too many, every other goes and the gap doubles.
function addPoint(job) {
  let curve = known.curves.get(job.job);
  const last = curve?.points.at(-1);
  if (!curve || (last && job.step < last[0])) known.curves.set(job.job, (curve = { points: [], gap: 0 })); // new, or back at a snapshot
  if (job.step === 0 || (last && job.step === last[0])) return;
  const { points } = curve;
  if (points.length > 1 && points.at(-1)[0] - points.at(-2)[0] < curve.gap) points.pop();
  points.push([job.step, job.loss]);
  if (points.length <= MOST_POINTS) return;
  curve.points = points.filter((_, i) => i % 2 === 0);
  curve.gap = (points.at(-1)[0] - points[0][0]) / (MOST_POINTS / 2);
}

function takeTimeline(timeline) {
  const offset = timeline.now_ns - performance.now() * 1e6;
  // The smallest delay seen is the truest; drift is followed slowly.
  known.clockOffsetNs = known.clockOffsetNs === null ? offset : Math.max(offset, known.clockOffsetNs - 1e5);
  for (const [lane, name, start, end, busy, n] of timeline.spans) {
    const list = known.spans[lane];
    list.push({ name, start, end, busy, n });
    if (list.length > MOST_SPANS) list.splice(0, MOST_SPANS / 10);
  }
  known.underWay = timeline.under_way;
}

function forgetGone() {
  for (const id of known.curves.keys()) if (!known.jobs.has(id)) known.curves.delete(id);
  if (known.samples.size > 4096) known.samples.clear();
}

// The server was started again.
export function forgetAll() {
  Object.assign(known, fresh());
}

export function take(tick) {
  known.tick = tick;
  takeSlice(known.models, tick.models, 'place', (place) => place >= tick.models_from && place < tick.models_to);
  takeSlice(known.jobs, tick.jobs, 'job', (id) => id > tick.jobs_after && (tick.jobs_to === null || id <= tick.jobs_to));
  for (const job of tick.jobs) addPoint(job);
  if (tick.timeline) takeTimeline(tick.timeline);
  if (tick.repository) known.repository = tick.repository;
  forgetGone();
}

// A part from 0 to 1 of the time between the ticks that told of it.
export function shareOf(item, key, tick) {
  if (tick.models.includes(item) || tick.jobs.includes(item)) item.share = rateOf(`device ${key}`, tick.account.elapsed_ns, item.device_ns) / 1e9;
  else item.share = known.samples.has(`device ${key}`) ? item.share ?? 0 : 0;
  return item.share;
}
