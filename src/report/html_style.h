// The style of the HTML report: light and dark by the reader's choice, one column on a phone, black on white on paper.
// Colours are told apart by people of any colour vision, and no verdict is told by colour alone. In the heat map blue
// is within the bound, orange outside.
#pragma once

#include <string_view>

namespace assay::verify {

inline constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--page:#faf9f7;--card:#fff;--ink:#1d1c1a;--dim:#66625b;--line:#dfdbd3;--code:#f1efea;
--pass:#00705a;--pass-soft:#e2f2ed;--warn:#8a5a00;--warn-soft:#fbf0d9;--fail:#b63a00;--fail-soft:#fce9df;--skip:#66625b;--skip-soft:#efede8;
--local:#0068a8;--bound:#85817a;--chain:#6b4fa0;--outside:#c94a00;--s0:#0068a8;--s1:#c94a00;--s2:#00705a;--s3:#6b4fa0;--s4:#85817a;
--h0:#f3f2ef;--h1:#e4eef6;--h2:#c9dff0;--h3:#a5cae6;--h4:#79b0d8;--h5:#4890c6;--h6:#1a69ab;--h7:#f6b26b;--h8:#d9620a;--h9:#8a2b02}
@media screen and (prefers-color-scheme:dark){:root{--page:#161614;--card:#1f1f1c;--ink:#eceae4;--dim:#a5a097;--line:#393731;--code:#2a2925;
--pass:#4fd0ab;--pass-soft:#16332b;--warn:#f0bc5b;--warn-soft:#3a2e14;--fail:#ff9a66;--fail-soft:#43220f;--skip:#a5a097;--skip-soft:#2a2925;
--local:#62b5ec;--bound:#8f8a80;--chain:#b9a1ea;--outside:#ff8a4c;--s0:#62b5ec;--s1:#ff8a4c;--s2:#4fd0ab;--s3:#b9a1ea;--s4:#8f8a80;
--h0:#26262a;--h1:#1d2f40;--h2:#1c4160;--h3:#1e5480;--h4:#276a9f;--h5:#3d88c1;--h6:#74b6e4;--h7:#b4671f;--h8:#ff8a33;--h9:#ffd0ad}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
main{max-width:70rem;margin:0 auto;padding:1.5rem clamp(.75rem,3vw,2rem) 3rem}
h1{font-size:clamp(1.35rem,4.5vw,1.9rem);line-height:1.2;margin:0 0 .35rem;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:1.15rem;margin:2.4rem 0 .6rem;letter-spacing:-.005em}
h3{font-size:1rem;margin:1.2rem 0 .4rem}
p{margin:.4rem 0;max-width:48rem}
code,.op{font-family:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;font-size:.9em;
unicode-bidi:isolate;overflow-wrap:anywhere}
.dim{color:var(--dim)}.num{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}
.verdict{border-radius:.75rem;padding:1.1rem 1.3rem;display:flex;gap:1rem;align-items:flex-start;border:1px solid}
.verdict .glyph{font-size:2.1rem;line-height:1;font-weight:700;width:1.4em;text-align:center;flex:none}
.verdict>div{min-width:0}
.verdict p{margin:.15rem 0}
.pass{color:var(--pass)}.warn{color:var(--warn)}.fail{color:var(--fail)}.skip{color:var(--skip)}
.verdict.pass{background:var(--pass-soft)}.verdict.warn{background:var(--warn-soft)}.verdict.fail{background:var(--fail-soft)}
.verdict h1,.verdict p{color:var(--ink)}
dl.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,9rem),1fr));gap:.2rem 1.5rem;margin:1.2rem 0}
dl.facts div{min-width:0;border-top:1px solid var(--line);padding:.35rem 0}
dl.facts div.wide{grid-column:1/-1}
dt{color:var(--dim);font-size:.8rem}dd{margin:0;overflow-wrap:anywhere}
ol.chain{list-style:none;margin:.6rem 0;padding:0;display:grid;grid-template-columns:repeat(auto-fill,minmax(10rem,1fr));gap:.5rem}
ol.chain li{border:1px solid var(--line);border-top:.3rem solid;border-radius:.5rem;padding:.4rem .5rem .45rem;background:var(--card);min-width:0}
ol.chain b{display:block;color:var(--ink);font-size:.86rem;line-height:1.25;overflow-wrap:break-word}
ol.chain small{color:var(--dim);display:flex;justify-content:space-between;gap:.3rem}
ol.chain small span:first-child{font-weight:600}
.pass.edge{border-top-color:var(--pass)!important}.warn.edge{border-top-color:var(--warn)!important}
.fail.edge{border-top-color:var(--fail)!important}.skip.edge{border-top-color:var(--line)!important}
.stage{border-top:1px solid var(--line);padding:.4rem 0;display:grid;grid-template-columns:6rem 9.5rem minmax(0,1fr);gap:0 1rem}
.stage>*{min-width:0;overflow-wrap:anywhere}.stage p{margin:0}.stage .word{font-weight:600}
.stage ul{margin:.2rem 0;padding-left:1.2rem}.stage details{margin:.2rem 0}.stage .found{grid-column:3}
@media (max-width:42rem){.stage{grid-template-columns:6rem minmax(0,1fr)}.stage .found{grid-column:1/-1}}
.scroll{overflow-x:auto;margin:.6rem 0;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.28rem .7rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--dim);white-space:nowrap}
tr:last-child td{border-bottom:0}
th.num,td.num{text-align:right}
tr.bad td{background:var(--fail-soft)}
td.op{white-space:nowrap}
.badge{display:inline-block;border:1px solid;border-radius:1rem;padding:0 .6em;font-size:.8rem;font-weight:600;white-space:nowrap}
.cause{border-left:.25rem solid var(--line);padding:.1rem 0 .1rem .9rem;margin:.7rem 0}
.cause.sure{border-left-color:var(--fail)}
.cause p{margin:.1rem 0}
figure{margin:.6rem 0}figcaption{color:var(--dim);font-size:.88rem;margin:.3rem 0;max-width:48rem}
svg{display:block;width:100%;min-width:40rem;height:auto}
svg.small{min-width:0}.scroll.small{max-width:32rem}td.word{white-space:nowrap}
svg text{fill:var(--dim);font:11px system-ui,"Liberation Sans",sans-serif}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--bound);stroke-width:1}
.bound{stroke:var(--bound);stroke-width:1.6;fill:none}.cumulative{stroke:var(--chain);stroke-width:1.8;fill:none}
.local{fill:var(--local)}.outside{stroke:var(--outside);stroke-width:2;fill:none}.region{fill:var(--fail-soft)}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}
.line{fill:none;stroke-width:1.8}.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}.d4{stroke-dasharray:1 5}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.88rem;margin:.3rem 0;padding:0;list-style:none}
.legend li{display:flex;align-items:center;gap:.4rem;min-width:0}.legend svg{min-width:0;width:2.2rem;flex:none}
table.heat{width:auto;font-size:.78rem}
table.heat th,table.heat td{padding:0;border:1px solid var(--card)}
table.heat th{padding:0 .3rem;font-weight:400}
table.heat th.op{position:sticky;left:0;background:var(--card);text-align:right;padding:0 .5rem}
table.heat td{width:1.15rem;min-width:1.15rem;height:1.15rem;text-align:center;line-height:1.1;font-weight:700;color:#fff}
.h0{background:var(--h0)}.h1{background:var(--h1)}.h2{background:var(--h2)}.h3{background:var(--h3)}.h4{background:var(--h4)}
.h5{background:var(--h5)}.h6{background:var(--h6)}.h7{background:var(--h7)}.h8{background:var(--h8)}.h9{background:var(--h9)}
table.heat td.h7,table.heat td.h9{color:#fff}table.heat td.h7{color:#1d1c1a}
td.first{outline:.16rem solid var(--ink);outline-offset:-.1rem}
.swatch{display:inline-block;width:1.15rem;height:1.15rem;border:1px solid var(--line);text-align:center;font-size:.78rem;line-height:1.1;font-weight:700;color:#fff}
.swatch.h7{color:#1d1c1a}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:.8rem}
.maps figure{margin:0}.maps img{width:100%;display:block;image-rendering:pixelated;border:1px solid var(--line)}
.ramp{height:.8rem;max-width:20rem;width:100%;display:block;image-rendering:auto;border:1px solid var(--line)}
details{margin:.8rem 0}summary{cursor:pointer;font-weight:600}
footer{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:.7rem;color:var(--dim);font-size:.88rem}
@media screen and (prefers-color-scheme:dark){table.heat td.h8,table.heat td.h9{color:#1d1c1a}table.heat td.h7{color:#fff}
.swatch.h8,.swatch.h9{color:#1d1c1a}.swatch.h7{color:#fff}}
@media print{:root{color-scheme:light}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}body{font-size:11pt;background:#fff}main{max-width:none;padding:0}
.scroll{overflow:visible}svg{min-width:0}.verdict,figure,.cause,.stage,tr{break-inside:avoid}h2,h3{break-after:avoid}
table.heat td{width:.7rem;min-width:0}table.heat{font-size:.6rem}}
)css";

}  // namespace assay::verify
