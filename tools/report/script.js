'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const summary = data.summary || {};
const config = data.config || {};
const byId = (id) => document.getElementById(id);
const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

// ---- numbers for people ---------------------------------------------------------------------

function formatNumber(value, digits = 3) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString('en-US');
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(Math.max(digits, size >= 100 ? 4 : digits))));
}

function formatBytes(value) {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

function formatTime(us) {
  if (Math.abs(us) >= 1e6) return `${(us / 1e6).toFixed(3)} s`;
  if (Math.abs(us) >= 1e3) return `${(us / 1e3).toFixed(us >= 1e5 ? 1 : 2)} ms`;
  return `${us.toFixed(1)} µs`;
}

const percent = (share) => (share === null || share === undefined ? '–' :
  `${(100 * share).toFixed(1)} %`);

const signedPercent = (share) => `${share < 0 ? '−' : '+'}${percent(Math.abs(share))}`;

// ---- tooltip --------------------------------------------------------------------------------

function showTooltip(event, text) {
  const tip = byId('tooltip');
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 16;
  const y = below + box.height > innerHeight ? event.clientY - box.height - 10 : below;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${Math.max(8, y)}px`;
}

function hideTooltip() {
  byId('tooltip').hidden = true;
}

// ---- header ---------------------------------------------------------------------------------

function addFigure(label, value, more, isGood) {
  const box = document.createElement('div');
  box.className = 'figure' + (isGood ? ' good' : '');
  for (const [name, text] of [['label', label], ['value', value], ['more', more || ' ']]) {
    const part = document.createElement('div');
    part.className = name;
    part.textContent = text;
    box.append(part);
  }
  byId('figures').append(box);
}

function buildHeader() {
  const devices = summary.devices || [];
  byId('title').textContent = `Stagecoach: ${data.name}`;
  document.title = `Stagecoach: ${data.name}`;
  const parts = [];
  if (summary.schedule) parts.push(`${summary.schedule}, ${summary.update} updates`);
  if (devices.length) parts.push(`${devices.length} device${devices.length > 1 ? 's' : ''} ` +
    `(${devices.join(', ')})`);
  if (summary.iterations) parts.push(`${formatNumber(summary.iterations)} iterations`);
  if (summary.wall_s) parts.push(`${formatNumber(summary.wall_s)} s`);
  byId('subtitle').textContent = parts.join(' · ') || 'no summary.json: the run has not ended';
  const last = data.points[data.points.length - 1];
  if (summary.validation_loss != null) {
    const gap = summary.bigram_entropy - summary.validation_loss;
    addFigure('Validation loss, nats per token', formatNumber(summary.validation_loss, 4),
      `${formatNumber(Math.abs(gap))} ${gap >= 0 ? 'below' : 'above'} the bigram entropy ` +
      `${formatNumber(summary.bigram_entropy, 4)}`, gap > 0);
  } else if (last) {
    addFigure('Training loss, nats per token', formatNumber(last[1], 4));
  }
  if (summary.tokens_per_s) {
    addFigure('Tokens per second', formatNumber(summary.tokens_per_s),
      `${formatNumber(summary.tokens)} tokens trained`);
  }
  if (summary.bubble_fraction != null) {
    addFigure('Idle share of devices', percent(summary.bubble_fraction),
      summary.measurement_valid === false ? `invalid: overrun ${percent(summary.overrun)}` :
        `simulated ${percent(summary.bubble_simulated)}`);
  }
  if (summary.parameters) {
    addFigure('Parameters', formatNumber(summary.parameters),
      `training state ${formatBytes(summary.state_bytes)} in host memory`);
  }
  if (summary.device_memory_bytes) {
    const total = summary.device_memory_bytes.reduce((sum, bytes) => sum + bytes, 0);
    addFigure('Memory of all devices', formatBytes(total),
      `peak ${formatBytes(Math.max(...summary.device_peak_bytes))} on one`);
  }
}

// ---- line charts ----------------------------------------------------------------------------

function svg(name, attributes, parent) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

// Mean over a window around each point; narrower at the ends, so that it lags nowhere.
function smooth(points, share) {
  const reach = Math.max(1, Math.round(points.length * share));
  const sums = [0];
  for (const [, y] of points) sums.push(sums[sums.length - 1] + y);
  return points.map(([x], i) => {
    const half = Math.min(reach, i, points.length - 1 - i);
    return [x, (sums[i + half + 1] - sums[i - half]) / (2 * half + 1)];
  });
}

// series: [{name, points, color, width, dash, dots}]; a point is [x, y].
function drawChart(id, series, options = {}) {
  const holder = byId(id);
  holder.textContent = '';
  const width = holder.clientWidth || 600, height = holder.clientHeight || 300;
  const shown = series.filter((s) => s.points.length);
  if (!shown.length) {
    holder.textContent = 'No data.';
    return;
  }
  const all = shown.flatMap((s) => s.points);
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (options.zero) y0 = Math.min(0, y0);
  if (x0 === x1) x1 = x0 + 1;
  const margin = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
  y1 += margin;
  if (!options.zero) y0 -= margin;
  const left = 56, right = 12, top = 8, bottom = 26;
  const toX = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
  const toY = (y) => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'}, holder);
  const format = options.format || ((v) => formatNumber(v));
  for (const tick of niceTicks(y0, y1, Math.max(2, height / 60))) {
    svg('line', {class: 'grid', x1: left, x2: width - right, y1: toY(tick), y2: toY(tick)}, root);
    svg('text', {x: left - 8, y: toY(tick) + 4, 'text-anchor': 'end'}, root).textContent =
      format(tick);
  }
  for (const tick of niceTicks(x0, x1, Math.max(2, width / 110))) {
    svg('text', {x: toX(tick), y: height - 6, 'text-anchor': 'middle'}, root).textContent =
      formatNumber(tick);
  }
  svg('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom,
    y2: height - bottom}, root);
  for (const s of shown) {
    const path = s.points.map((p, i) =>
      `${i ? 'L' : 'M'}${toX(p[0]).toFixed(1)} ${toY(p[1]).toFixed(1)}`).join('');
    svg('path', {d: path, fill: 'none', stroke: `var(--${s.color})`,
      'stroke-width': s.width || 1.5, 'stroke-dasharray': s.dash || 'none',
      'stroke-linejoin': 'round'}, root);
    if (!s.dots) continue;
    for (const p of s.points) {
      svg('circle', {cx: toX(p[0]), cy: toY(p[1]), r: 3.5, fill: `var(--${s.color})`}, root);
    }
  }
  if (options.legend) {
    let x = width - right;
    for (const s of [...shown].reverse()) {
      const text = svg('text', {x: x, y: top + 10, 'text-anchor': 'end'}, root);
      text.textContent = s.name;
      x -= text.getComputedTextLength() + 8;
      svg('line', {x1: x - 18, x2: x, y1: top + 6, y2: top + 6, stroke: `var(--${s.color})`,
        'stroke-width': 3, 'stroke-dasharray': s.dash || 'none'}, root);
      x -= 34;
    }
  }
  const cursor = svg('line', {class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden'},
    root);
  root.addEventListener('mousemove', (event) => {
    const box = root.getBoundingClientRect();
    const at = x0 + (event.clientX - box.left - left) / (box.width - left - right) * (x1 - x0);
    if (at < x0 || at > x1) return;
    const lines = [];
    let nearest = null;
    for (const s of shown.filter((each) => !each.silent)) {
      const p = s.points.reduce((best, point) =>
        Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
      if (s.constant || Math.abs(p[0] - at) <= (x1 - x0) / 15) {
        lines.push(`${s.name} ${format(p[1])}`);
      }
      if (!s.constant && (nearest === null || Math.abs(p[0] - at) < Math.abs(nearest - at))) {
        nearest = p[0];
      }
    }
    if (nearest === null) return;
    cursor.setAttribute('x1', toX(nearest));
    cursor.setAttribute('x2', toX(nearest));
    cursor.setAttribute('visibility', 'visible');
    showTooltip(event, `iteration ${nearest}\n${lines.join('\n')}`);
  });
  root.addEventListener('mouseleave', () => {
    cursor.setAttribute('visibility', 'hidden');
    hideTooltip();
  });
}

function drawCharts() {
  const column = (index) => data.points.map((row) => [row[0], row[index]]);
  const loss = column(1);
  const series = [
    {name: 'training', points: loss, color: loss.length > 60 ? 'train' : 'smooth', width: 1,
      silent: false},
    {name: 'validation', points: data.validation, color: 'validation', width: 2, dots: true},
  ];
  if (loss.length > 60) {
    series.splice(1, 0, {name: 'training, smoothed', points: smooth(loss, 0.02), color: 'smooth',
      width: 2});
  }
  if (summary.bigram_entropy != null && loss.length) {
    series.push({name: 'bigram entropy', color: 'bigram', width: 1.5, dash: '6 4', constant: true,
      points: [[loss[0][0], summary.bigram_entropy],
        [loss[loss.length - 1][0], summary.bigram_entropy]]});
  }
  drawChart('loss-chart', series, {legend: true});
  byId('loss-note').textContent = 'Nats per token.' +
    (summary.bigram_entropy != null ? ' The dashed line is what a model that sees one token back' +
      ' can reach at best on the validation text.' : '') +
    (data.points_total > data.points.length ?
      ` ${data.points.length} of ${data.points_total} points are shown.` : '');
  drawChart('speed-chart', [{name: 'tokens/s', points: column(2), color: 'smooth'}], {zero: true});
  drawChart('norm-chart', [{name: 'gradient norm', points: column(3), color: 'smooth'}],
    {zero: true});
  drawChart('rate-chart', [{name: 'learning rate', points: column(4), color: 'smooth'}],
    {zero: true});
  drawChart('idle-chart', [{name: 'idle', points: column(5), color: 'smooth'}],
    {zero: true, format: (v) => `${formatNumber(100 * v)} %`});
}

// ---- timeline -------------------------------------------------------------------------------

const kTrack = 0, kStart = 1, kDuration = 2, kName = 3, kStage = 4, kMicroBatch = 5,
  kIteration = 6, kBytes = 7;
const kLabelWidth = 168, kAxisHeight = 24, kComputeHeight = 26, kLaneHeight = 12, kGap = 2,
  kGroupGap = 10, kPredicted = 'predicted ';

class Timeline {
  constructor(trace) {
    this.trace = trace;
    this.canvas = byId('timeline-canvas');
    this.view = [0, trace.span_us];
    this.layOut();
    this.listen();
    this.draw();
  }

  // Tracks that hold something; a device's predicted computing follows its measured one.
  tracksInOrder() {
    const used = new Set(this.trace.slices.map((s) => s[kTrack]));
    const tracks = this.trace.tracks.map((track, index) => ({track, index}))
      .filter((each) => used.has(each.index));
    const isPredicted = (track) => track.process.startsWith(kPredicted);
    const ordered = [], placed = new Set();
    const place = (each, device) => {
      ordered.push({...each, device, isPredicted: isPredicted(each.track)});
      placed.add(each.index);
    };
    for (const each of tracks.filter((one) => !isPredicted(one.track))) {
      place(each, each.track.process);
      for (const other of tracks) {
        const belongs = other.track.process === kPredicted + each.track.process &&
          other.track.name === each.track.name;
        if (belongs) place(other, each.track.process);
      }
    }
    for (const each of tracks.filter((one) => !placed.has(one.index))) {
      place(each, each.track.process);
    }
    return ordered;
  }

  layOut() {
    this.rows = [];
    let y = kAxisHeight, last = null;
    for (const {track, index, device, isPredicted} of this.tracksInOrder()) {
      if (device !== last) {
        if (last !== null) y += kGroupGap;
        last = device;
      }
      const isCompute = track.name === 'compute';
      const isHost = track.process === 'host';
      const height = isCompute || isHost ? kComputeHeight : kLaneHeight;
      const slices = this.trace.slices.filter((s) => s[kTrack] === index)
        .sort((a, b) => a[kStart] - b[kStart]);
      this.rows.push({track, y, height, isCompute, isHost, isPredicted, device, slices});
      y += height + kGap;
    }
    this.height = y + 4;
    this.rowOfCompute = this.rows.filter((row) => row.isCompute);
  }

  // The same slot on the other of the two rows of a device.
  counterpart(row, slice) {
    if (!row.isCompute) return null;
    const other = this.rows.find((each) => each.isCompute && each.device === row.device &&
      each.isPredicted !== row.isPredicted);
    return other && other.slices.find((s) =>
      [kName, kStage, kMicroBatch, kIteration].every((key) => s[key] === slice[key])) || null;
  }

  // How far the prediction of a device is off: "+2.1 %".
  differenceText(device) {
    const prediction = this.trace.prediction;
    const found = prediction && prediction.devices.find((each) => each.device === device);
    return found ? signedPercent(found.difference) : '';
  }

  kind(row, slice) {
    if (row.isHost) return 'host';
    return row.isCompute ? slice[kName] : row.track.name;
  }

  toX(us) {
    return kLabelWidth + (us - this.view[0]) / (this.view[1] - this.view[0]) *
      (this.width - kLabelWidth);
  }

  toTime(x) {
    return this.view[0] + (x - kLabelWidth) / (this.width - kLabelWidth) *
      (this.view[1] - this.view[0]);
  }

  draw() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.parentElement.clientWidth;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const g = this.canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    this.drawAxis(g);
    for (const row of this.rows) this.drawRow(g, row);
  }

  drawAxis(g) {
    g.fillStyle = color('muted');
    g.strokeStyle = color('grid');
    g.textAlign = 'center';
    for (const tick of niceTicks(this.view[0], this.view[1], this.width / 130)) {
      const x = this.toX(tick);
      if (x < kLabelWidth) continue;
      g.beginPath();
      g.moveTo(x, kAxisHeight - 4);
      g.lineTo(x, this.height);
      g.stroke();
      if (x < this.width - 30 && x > kLabelWidth + 24) g.fillText(formatTime(tick), x, 9);
    }
  }

  idleShare(row) {
    let busy = 0;
    for (const s of row.slices) {
      busy += Math.max(0, Math.min(s[kStart] + s[kDuration], this.view[1]) -
        Math.max(s[kStart], this.view[0]));
    }
    return 1 - busy / (this.view[1] - this.view[0]);
  }

  drawRow(g, row) {
    g.textAlign = 'left';
    const middle = row.y + row.height / 2;
    if (row.isCompute || row.isHost) {
      g.fillStyle = color('text');
      g.font = '600 12px system-ui, sans-serif';
      const name = row.isHost ? `host ${row.track.name}` :
        row.isPredicted ? 'predicted' : row.track.process;
      g.fillText(name, 0, middle);
      if (row.isPredicted) {
        g.fillStyle = color('muted');
        g.font = '11px system-ui, sans-serif';
        g.textAlign = 'right';
        g.fillText(this.differenceText(row.device), kLabelWidth - 8, middle);
      } else if (row.isCompute) {
        g.fillStyle = color('muted');
        g.font = '11px system-ui, sans-serif';
        g.textAlign = 'right';
        g.fillText(`idle ${percent(this.idleShare(row))}`, kLabelWidth - 8, middle);
      }
    } else {
      g.fillStyle = color('muted');
      g.font = '10px system-ui, sans-serif';
      g.textAlign = 'right';
      g.fillText(row.track.name.replace('_', ' '), kLabelWidth - 8, middle);
    }
    if (row.isCompute) this.drawIdle(g, row);
    for (const slice of row.slices) this.drawSlice(g, row, slice);
  }

  // Idle time is what a reader looks for: hatched, so that it does not read as background.
  drawIdle(g, row) {
    let x0 = kLabelWidth, x1 = this.width;
    if (row.isPredicted) {  // of one iteration: elsewhere nothing is known
      const last = row.slices[row.slices.length - 1];
      x0 = Math.max(x0, this.toX(row.slices[0][kStart]));
      x1 = Math.min(x1, this.toX(last[kStart] + last[kDuration]));
      if (x1 <= x0) return;
    }
    g.fillStyle = color('idle');
    g.fillRect(x0, row.y, x1 - x0, row.height);
    g.save();
    g.beginPath();
    g.rect(x0, row.y, x1 - x0, row.height);
    g.clip();
    g.strokeStyle = color('idle-line');
    g.beginPath();
    for (let x = x0 - row.height; x < x1; x += 8) {
      g.moveTo(x, row.y + row.height);
      g.lineTo(x + row.height, row.y);
    }
    g.stroke();
    g.restore();
  }

  drawSlice(g, row, slice) {
    const from = this.toX(slice[kStart]), to = this.toX(slice[kStart] + slice[kDuration]);
    if (to < kLabelWidth || from > this.width) return;
    const x = Math.max(from, kLabelWidth);
    const width = Math.max(Math.min(to, this.width) - x, 0.75);
    g.fillStyle = color(this.kind(row, slice));
    // Neighbours stay apart while there is room.
    g.fillRect(x, row.y, width > 3 ? width - 0.75 : width, row.height);
    if (slice === this.hovered) {
      g.strokeStyle = color('text');
      g.lineWidth = 1.5;
      g.strokeRect(x, row.y + 0.75, width - 0.75, row.height - 1.5);
      g.lineWidth = 1;
    }
    if (!row.isCompute && !row.isHost) return;
    const label = row.isHost ? slice[kName] : `${slice[kStage]}:${slice[kMicroBatch]}`;
    g.font = '11px system-ui, sans-serif';
    if (g.measureText(label).width + 6 > width) return;
    g.fillStyle = '#fff';
    g.textAlign = 'center';
    g.fillText(label, x + width / 2, row.y + row.height / 2 + 0.5);
  }

  find(x, y) {
    const row = this.rows.find((each) => y >= each.y && y < each.y + each.height);
    if (!row || x < kLabelWidth) return [null, null];
    const slack = 2 * (this.view[1] - this.view[0]) / this.width;
    const time = this.toTime(x);
    const slice = row.slices.find((s) => time >= s[kStart] - slack &&
      time <= s[kStart] + s[kDuration] + slack);
    return [row, slice || null];
  }

  describe(row, slice) {
    const names = {F: 'forward', B: 'backward', FB: 'forward and backward (fused)'};
    const lines = [`${row.track.process} ${row.track.name.replace('_', ' ')}`,
      names[slice[kName]] || slice[kName].replace('_', ' ')];
    if (slice[kStage] >= 0) {
      lines.push(`stage ${slice[kStage]}` +
        (slice[kMicroBatch] >= 0 ? `, micro-batch ${slice[kMicroBatch]}` : ''));
    }
    if (slice[kIteration] >= 0) lines.push(`iteration ${slice[kIteration] + 1}`);
    lines.push(`${formatTime(slice[kDuration])}, from ${formatTime(slice[kStart])}`);
    const other = this.counterpart(row, slice);
    if (other) {
      const [measured, predicted] = row.isPredicted ? [other, slice] : [slice, other];
      lines.push(`${row.isPredicted ? 'measured' : 'predicted'} ` +
        `${formatTime(other[kDuration])}, from ${formatTime(other[kStart])}`,
        `prediction ${signedPercent(predicted[kDuration] / measured[kDuration] - 1)}`);
    }
    if (slice[kBytes] >= 0) {
      const rate = slice[kDuration] > 0 ? slice[kBytes] / slice[kDuration] * 1e6 : 0;
      lines.push(`${formatBytes(slice[kBytes])}` + (rate ? `, ${formatBytes(rate)}/s` : ''));
    }
    return lines.join('\n');
  }

  setView(from, to) {
    const whole = this.trace.span_us;
    const span = Math.min(Math.max(to - from, 5), whole);
    from = Math.min(Math.max(from, 0), whole - span);
    this.view = [from, from + span];
    if (!this.pending) {
      this.pending = requestAnimationFrame(() => {
        this.pending = null;
        this.draw();
      });
    }
  }

  zoom(factor, center) {
    const at = center === undefined ? (this.view[0] + this.view[1]) / 2 : center;
    this.setView(at - (at - this.view[0]) * factor, at + (this.view[1] - at) * factor);
  }

  showIteration() {
    const first = this.trace.last_iteration - 1;
    const inside = this.trace.slices.filter((s) => s[kIteration] === first);
    if (!inside.length) return;
    const from = Math.min(...inside.map((s) => s[kStart]));
    const to = Math.max(...inside.map((s) => s[kStart] + s[kDuration]));
    this.setView(from, to);
  }

  listen() {
    const canvas = this.canvas;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const [x] = at(event);
      const span = this.view[1] - this.view[0];
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        const move = (event.deltaX || event.deltaY) / this.width * span;
        this.setView(this.view[0] + move, this.view[1] + move);
      } else {
        this.zoom(Math.exp(event.deltaY * 0.0015), this.toTime(Math.max(x, kLabelWidth)));
      }
    }, {passive: false});
    let drag = null;
    canvas.addEventListener('pointerdown', (event) => {
      drag = {x: at(event)[0], view: [...this.view]};
      canvas.setPointerCapture(event.pointerId);
      canvas.classList.add('dragging');
    });
    canvas.addEventListener('pointerup', () => {
      drag = null;
      canvas.classList.remove('dragging');
    });
    canvas.addEventListener('pointermove', (event) => {
      const [x, y] = at(event);
      if (drag) {
        const move = (drag.x - x) / (this.width - kLabelWidth) * (drag.view[1] - drag.view[0]);
        this.setView(drag.view[0] + move, drag.view[1] + move);
        return;
      }
      const [row, slice] = this.find(x, y);
      if (slice !== this.hovered) {
        this.hovered = slice;
        this.draw();
      }
      if (slice) showTooltip(event, this.describe(row, slice));
      else hideTooltip();
    });
    canvas.addEventListener('pointerleave', () => {
      this.hovered = null;
      hideTooltip();
      this.draw();
    });
    canvas.addEventListener('dblclick', () => this.setView(0, this.trace.span_us));
    byId('zoom-in').addEventListener('click', () => this.zoom(0.5));
    byId('zoom-out').addEventListener('click', () => this.zoom(2));
    byId('zoom-all').addEventListener('click', () => this.setView(0, this.trace.span_us));
    byId('zoom-iteration').addEventListener('click', () => this.showIteration());
    byId('timeline').addEventListener('keydown', (event) => {
      const step = 0.15 * (this.view[1] - this.view[0]);
      const moves = {ArrowLeft: -step, ArrowRight: step};
      if (event.key in moves) {
        this.setView(this.view[0] + moves[event.key], this.view[1] + moves[event.key]);
      } else if (event.key === '+') this.zoom(0.5);
      else if (event.key === '-') this.zoom(2);
      else if (event.key === '0') this.setView(0, this.trace.span_us);
      else if (event.key === '1') this.showIteration();
      else return;
      event.preventDefault();
    });
  }
}

function buildLegend() {
  const entries = [['F', 'forward'], ['FB', 'fused forward and backward'], ['B', 'backward'],
    ['activation_up', 'activation up'], ['activation_down', 'activation down'],
    ['parameter_up', 'parameter up'], ['gradient_down', 'gradient down'], ['host', 'host worker'],
    ['idle-line', 'idle']];
  for (const [name, text] of entries) {
    const entry = document.createElement('span');
    entry.style.setProperty('--swatch', `var(--${name})`);
    entry.textContent = text;
    byId('legend').append(entry);
  }
}

function describePrediction(prediction) {
  if (!prediction) return '';
  return ` Computing of iteration ${prediction.iteration} was predicted to take ` +
    `${formatTime(prediction.predicted_us)} and took ${formatTime(prediction.measured_us)}: ` +
    `${signedPercent(prediction.difference)}.`;
}

function buildTimeline() {
  const trace = data.trace;
  if (!trace || !trace.slices.length) {
    byId('timeline-note').textContent = 'This run recorded no trace (output.trace = false).';
    for (const id of ['timeline', 'legend']) byId(id).hidden = true;
    document.querySelector('#timeline-card .buttons').hidden = true;
    return null;
  }
  const range = trace.first_iteration === trace.last_iteration ?
    `Iteration ${trace.last_iteration}` :
    `Iterations ${trace.first_iteration} to ${trace.last_iteration}`;
  byId('timeline-note').textContent = `${range}: ${trace.shown.toLocaleString('en-US')} of ` +
    `${trace.total.toLocaleString('en-US')} recorded slices (a report carries at most ` +
    `${trace.limit.toLocaleString('en-US')}; trace.json opens in Perfetto with all of them).` +
    (trace.dropped > 0 ? ` The recorder was full then: ${trace.dropped.toLocaleString('en-US')} ` +
      'later slices were not recorded.' : '') + describePrediction(trace.prediction);
  buildLegend();
  return new Timeline(trace);
}

// ---- tables ---------------------------------------------------------------------------------

function addRow(table, name, value, isSection) {
  const row = table.insertRow();
  row.insertCell().textContent = name;
  if (isSection) {
    row.className = 'section';
    row.insertCell();
    return;
  }
  const cell = row.insertCell();
  if (typeof value === 'number') cell.className = 'number';
  cell.textContent = value;
}

function describeValue(key, value) {
  if (value === null || value === undefined) return '–';
  if (Array.isArray(value)) return value.map((v) => describeValue(key, v)).join(', ');
  if (typeof value !== 'number') return String(value);
  if (/bytes(_up|_down)?$|^bytes/.test(key)) return `${formatBytes(value)}`;
  if (/fraction|overrun|bubble/.test(key)) return percent(value);
  return formatNumber(value, 5);
}

function buildTables() {
  const table = document.createElement('table');
  for (const [key, value] of Object.entries(summary)) {
    if (key !== 'plan') addRow(table, key, describeValue(key, value));
  }
  byId('summary-table').append(table);
  if (summary.plan) {
    const pre = document.createElement('pre');
    pre.textContent = summary.plan;
    const title = document.createElement('p');
    title.className = 'note';
    title.textContent = 'plan of an iteration, one line a device (kind, stage:micro-batch)';
    byId('summary-table').append(title, pre);
  }
  const settings = document.createElement('table');
  for (const [section, keys] of Object.entries({...config, 'model config': data.model || {}})) {
    addRow(settings, section, '', true);
    for (const [key, value] of Object.entries(keys)) {
      addRow(settings, key, Array.isArray(value) ? value.join(', ') : String(value));
    }
  }
  byId('config-table').append(settings);
}

buildHeader();
buildTables();
drawCharts();
const timeline = buildTimeline();
function redraw() {
  drawCharts();
  if (timeline) timeline.draw();
}
let resizing = null;
addEventListener('resize', () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
