"""The look of the report. Everything is inside the file: system fonts, no image, no script."""

CSS = """
:root { --ink: #1f2933; --soft: #52606d; --line: #e4e7eb; --own: #eef4fb; --accent: #2563a8; }
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
.wide { overflow-x: auto; margin-top: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px 5px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
th.n, td.n { text-align: right; white-space: nowrap; padding: 5px 0 5px 14px; }
tr.own td { background: var(--own); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9em; }
details summary { cursor: pointer; color: var(--accent); margin-top: 10px; font-size: .92rem; }
@media (max-width: 600px) {
  main { padding: 14px 8px 40px; } section { padding: 14px 12px; border-radius: 8px; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; } h1 { font-size: 1.35rem; }
}
@media print {
  body { background: #fff; font-size: 11pt; } main { max-width: none; padding: 0; }
  section { border: 0; padding: 8px 0; } figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
  .grid { grid-template-columns: 1fr 1fr; } .wide { overflow: visible; }
}
""".strip()
