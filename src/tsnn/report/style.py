"""The look of the report. Everything is inside the file: system fonts, no image, no script."""

CSS = """
:root { --ink: #1f2933; --soft: #52606d; --line: #e4e7eb; --accent: #2563a8; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #f5f7fa; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
header { border-bottom: 3px solid var(--accent); margin-bottom: 24px; padding-bottom: 8px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 4px; }
h3 { font-size: 1rem; margin: 16px 0 4px; }
.lead { margin: 4px 0; color: var(--soft); } .lead b { color: var(--ink); }
section { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 18px; }
.note { margin: 0 0 12px; color: var(--soft); font-size: .92rem; max-width: 46em; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 14px 24px;
  align-items: start; }
figure { margin: 0; max-width: 560px; }
figcaption { font-weight: 600; font-size: .9rem; }
figure svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; margin-top: 10px; background: linear-gradient(90deg, #fff 12px, #fff0 36px) local,
  linear-gradient(270deg, #fff 12px, #fff0 36px) 100% 0 local, linear-gradient(90deg, #0002, #0000 10px),
  linear-gradient(270deg, #0002, #0000 10px); } /* a shadow where a wide table goes on */
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px 5px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
th.n, td.n { text-align: right; white-space: nowrap; padding: 5px 0 5px 14px; }
tr.own td { font-weight: 600; background: #2563a814; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9em; }
details summary { cursor: pointer; color: var(--accent); margin-top: 10px; font-size: .92rem; }
@media (max-width: 600px) {
  main { padding: 14px 8px 40px; } section { padding: 14px 12px; border-radius: 8px; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; } h1 { font-size: 1.35rem; }
  .stacked thead { display: none; } .stacked tr, .stacked td { display: block; border: 0; padding: 0; }
  .stacked tr { border-bottom: 1px solid var(--line); padding: 6px 0; } .stacked td:first-child { font-weight: 600; }
  .stacked td:nth-child(n+3):not(:last-child)::before { content: attr(data-head) ": "; color: var(--soft); }
}
@page { margin: 14mm; }
@media print {
  html { font-size: 9.5pt; } body { background: #fff; font-size: 9.5pt; } main { max-width: none; padding: 0; }
  section { border: 0; padding: 8px 0; margin: 0; } figure, tr { break-inside: avoid; }
  h2, h3, .note { break-after: avoid; } .note { max-width: none; } .note, dl { break-inside: avoid; }
  .grid { grid-template-columns: 1fr 1fr; } .wide { overflow: visible; background: none; }
  details:not([open]) { display: none; }
}
""".strip()
