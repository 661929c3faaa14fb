// Small plots. Their shapes are attributes of SVG, which need no inline style.

const svg = 'http://www.w3.org/2000/svg';
const width = 84;
const height = 18;

export function newPlot() {
  const root = document.createElementNS(svg, 'svg');
  root.setAttribute('viewBox', `0 0 ${width} ${height}`);
  root.setAttribute('width', width);
  root.setAttribute('height', height);
  root.setAttribute('class', 'plot');
  root.setAttribute('aria-hidden', 'true');
  const area = document.createElementNS(svg, 'path');
  area.setAttribute('class', 'area');
  const line = document.createElementNS(svg, 'path');
  line.setAttribute('class', 'line');
  root.append(area, line);
  return root;
}

const fewest = 12; // values that fill a plot

// draw draws values from the right, the last one last. null is a gap.
export function draw(plot, values) {
  const steps = Math.max(fewest, values.length);
  const known = values.filter((v) => v !== null);
  const most = Math.max(...known, 1e-9);
  const step = (width - 2) / (steps - 1);
  const first = steps - values.length;
  let line = '';
  let area = '';
  let from = null;
  const close = (x) => {
    if (from !== null) area += `L${x} ${height}L${from} ${height}Z`;
    from = null;
  };
  let last = 0;
  values.forEach((value, i) => {
    const x = Math.round((1 + (first + i) * step) * 10) / 10;
    if (value === null) {
      close(last);
      return;
    }
    const y = Math.round((height - 2 - (height - 4) * (value / most)) * 10) / 10;
    const move = from === null ? 'M' : 'L';
    // A value alone is a dot.
    line += `${move}${x} ${y}${move === 'M' ? `l0.01 0` : ''}`;
    area += `${move}${x} ${y}`;
    if (from === null) from = x;
    last = x;
  });
  close(last);
  plot.lastChild.setAttribute('d', line);
  plot.firstChild.setAttribute('d', area);
}
