"""How the page looks: light and dark, on a wide screen, a phone and paper.

The eight colours of the policies can be told apart with any of the common kinds of colour
blindness by their lightness as well, and stand out from the card by at least 3 to 1 in both modes
(WCAG 2.2, 1.4.11); from the ninth policy on lines are dashed.
"""

from typing import Final

LIGHT: Final = {
    "paper": "#f6f5f1",
    "card": "#ffffff",
    "ink": "#1c2026",
    "soft": "#59616d",
    "edge": "#dfddd6",
    "grid": "#e9e7e1",
    "idle": "#efede8",
    "cut": "#c2181f",
}
DARK: Final = {
    "paper": "#14171b",
    "card": "#1c2026",
    "ink": "#e9ebee",
    "soft": "#a3abb7",
    "edge": "#333a43",
    "grid": "#2b3138",
    "idle": "#272c33",
    "cut": "#ff6b6b",
}
LIGHT_POLICIES: Final = (
    *("#0b5fa5", "#c4480a", "#0b7d5a", "#8a3fb0"),
    *("#8a6a00", "#c22f6d", "#2b8caf", "#5c636d"),
)
DARK_POLICIES: Final = (
    *("#62aef2", "#ff9356", "#41cf9d", "#c795ea"),
    *("#e2c044", "#ff86b3", "#83d8f2", "#b4bac3"),
)
COLOURS: Final = len(LIGHT_POLICIES)


def css(policies: int) -> str:
    """The style sheet of a page with so many policies."""
    light, dark = _colours(LIGHT, LIGHT_POLICIES), _colours(DARK, DARK_POLICIES)
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{_PAGE}{_PLOTS}{_MAP}{_policies(policies)}"
    )


def _colours(named: dict[str, str], policies: tuple[str, ...]) -> str:
    numbered = {f"c{number}": colour for number, colour in enumerate(policies)}
    return "".join(f"--{name}:{colour};" for name, colour in (named | numbered).items())


def _policies(policies: int) -> str:
    rules = []
    for number in range(policies):
        rules.append(f".p{number}{{--own:var(--c{number % COLOURS})}}")
        if number >= COLOURS:
            rules.append(f".line.p{number}{{stroke-dasharray:7 4}}")
        # A legend entry under the pointer lets the other policies fade.
        rules.append(f".curves:has(li.p{number}:hover) .line:not(.p{number}){{opacity:.12}}")
        # The tab that is chosen shows its panel, without a script.
        rules.append(
            f"#tab{number}:checked~.panels>:nth-child({number + 1}){{display:grid}}"
            f"#tab{number}:checked~.tabs label:nth-child({number + 1})"
            "{background:var(--own);border-color:var(--own);color:var(--card)}"
            f"#tab{number}:focus-visible~.tabs label:nth-child({number + 1})"
            "{outline:2px solid var(--ink);outline-offset:2px}"
        )
    rules += [f".g{number}{{fill:var(--c{number})}}" for number in range(COLOURS)]
    return "".join(rules)


_PAGE: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.45;
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:clamp(24px,4vw,34px);line-height:1.15;margin:4px 0 10px;letter-spacing:-.015em}
h2{font-size:20px;margin:44px 0 4px;letter-spacing:-.01em}
h3,h4{font-size:14px;margin:0 0 8px}
p{margin:0 0 12px;max-width:78ch}
.kicker{color:var(--soft);font-size:13px;letter-spacing:.02em;margin:0}
.lede{font-size:17px;max-width:none}
.note,footer,.soft{color:var(--soft)}
.note{margin-bottom:14px}
.caveat{border-left:3px solid var(--c1);padding:2px 0 2px 12px}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.command{display:block;background:var(--card);border:1px solid var(--edge);border-radius:8px;
padding:10px 12px;overflow-x:auto;white-space:pre}
.cards{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(310px,100%),1fr))}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:14px 16px;
min-width:0}
.card h3 span{float:right;font-weight:400;color:var(--soft)}
.bar{display:grid;grid-template-columns:minmax(0,1fr) auto 3.6em;gap:3px 6px;margin-top:9px;
font-size:13px}
.bar .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bar .value,.bar .ratio{text-align:right}
.bar .ratio{color:var(--soft)}
.bar .track{position:relative;height:9px;grid-column:1/-1}
.bar .track i{position:absolute;inset:0 auto 0 0;background:var(--own);border-radius:2px;
min-width:2px}
.bar .track b{position:absolute;top:50%;height:2px;margin-top:-1px;background:var(--ink);
box-shadow:0 0 0 1px var(--card)}
.bar.best .name,.bar.best .value,td.best{font-weight:700}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:12px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:6px 12px;text-align:right;white-space:nowrap;vertical-align:top}
thead th{border-bottom:1px solid var(--edge);vertical-align:bottom}
thead th::before{content:"";display:block;height:4px;border-radius:2px;background:var(--own);
margin-bottom:6px}
thead th:first-child::before{visibility:hidden}
th:first-child{text-align:left;position:sticky;left:0;background:var(--card);font-weight:400}
tbody th[colspan]{font-weight:700;padding-top:16px}
tbody tr+tr td,tbody tr+tr th{border-top:1px solid var(--grid)}
td small{display:block;color:var(--soft);font-weight:400;font-size:12px}
td.best{background:color-mix(in srgb,var(--own) 13%,transparent)}
abbr{text-decoration:none;cursor:help}
footer{margin-top:44px;font-size:13px;border-top:1px solid var(--edge);padding-top:16px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px;margin:0 0 16px}
dt{font-weight:600}dd{margin:0}
@media(max-width:640px){main{padding:20px 14px 36px}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:6px}th,td{padding:6px 8px}}
@media print{.card,.scroll,.strip{break-inside:avoid}body{background:#fff}}
"""

_PLOTS: Final = """
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:0 0 12px;
font-size:13px}
.legend li{cursor:default}
.legend li::before{content:"";display:inline-block;width:14px;height:4px;border-radius:2px;
background:var(--own);margin-right:6px;vertical-align:middle}
.plot{display:grid;grid-template-columns:46px minmax(0,1fr);margin-right:22px}
.plot svg{height:var(--height);width:100%;display:block;overflow:visible}
.plot .up,.plot .across,.map .up,.map .across{position:relative;font-size:11.5px;
color:var(--soft)}
.up span{position:absolute;right:8px;transform:translateY(50%);white-space:nowrap}
.across{grid-column:2;height:22px}
.across:empty{height:4px}
.across span{position:absolute;top:5px;transform:translateX(-50%);white-space:nowrap}
.across::before{content:"";position:absolute;left:0;right:0;top:0;border-top:1px solid var(--soft);
opacity:.5}
.grid,.line,.limit{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid);stroke-width:1}
.line{stroke:var(--own);stroke-width:1.8;stroke-linejoin:round;transition:opacity .15s}
.area{fill:var(--own);fill-opacity:.78}
.limit{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3;opacity:.6}
.strip{padding:8px 0}
.strip h4{margin:0 0 4px 46px;font-size:13px}
.strip h4 span{font-weight:400;color:var(--soft);margin-left:8px}
"""

_MAP: Final = """
.tabs{display:flex;flex-wrap:wrap;gap:6px;margin-bottom:14px}
.tabs label{border:1px solid var(--edge);border-radius:999px;padding:4px 12px;cursor:pointer;
font-size:13px;background:var(--card)}
.choose>input{position:absolute;opacity:0;pointer-events:none}
.map{display:none;grid-template-columns:calc(var(--longest)*1ch + 10px) minmax(0,1fr);
margin-right:22px;font-size:11.5px}
.map .up{height:var(--height)}
.map .up span{left:0;transform:translateY(-50%);overflow:hidden;text-overflow:ellipsis;
text-align:right}
.map svg{height:var(--height);width:100%;display:block}
.idle{fill:var(--idle)}
.map g rect{stroke:var(--card);stroke-width:.7;vector-effect:non-scaling-stroke}
.map g:hover rect{stroke:var(--ink);stroke-width:1.6}
.solo{fill:var(--soft)}.s0{fill-opacity:.34}.s1{fill-opacity:.46}.s2{fill-opacity:.58}
.map g .cut{fill:var(--cut);fill-opacity:1;stroke:none}
.swatch{display:inline-block;width:12px;height:12px;border-radius:2px;vertical-align:-1px;
margin:0 3px 0 10px;background:var(--own)}
"""
