"""The pages of the board, served on loopback to one person.

The address that ``bireme ui`` prints holds a token that works once; the browser that opens it gets
a cookie. Everything else is refused, and so is a request for another host: a foreign page could
have its own name point at this machine. Pages load nothing from elsewhere, run no script and no
style but their own files, and nothing can be changed through them.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from starlette.types import ASGIApp, Receive, Scope, Send

from bireme.cli import what_if
from bireme.cli.cluster import ConsoleError
from bireme.cli.gangs import GangLine, in_order
from bireme.cli.ui import drawing, questions
from bireme.cli.ui.live import Live
from bireme.cli.ui.recorded import Recorded
from bireme.cli.ui.view import View
from bireme.cli.why import Explanation, starts_in
from bireme.core.errors import BiremeError
from bireme.core.gpus import GPU
from bireme.core.times import clock_time, duration
from bireme.kube.conditions import cleaned

HERE: Final = Path(__file__).parent
_ROWS: Final = 100
"""Of a table on one page: a browser is slow with thousands."""
_FIRST_ROWS: Final = 15
_LOG_LINES: Final = 500
_EVENT_SECONDS: Final = 1.0
"""The shortest time between two renewals of a page."""
_BEAT_SECONDS: Final = 15.0
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets only the holder of the token in, and only under the names of this machine."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token: str | None = token
        self._session = secrets.token_urlsafe(32)
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        # Cookies are kept by host alone: two boards on two ports need two.
        self._cookie = f"bireme-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                pairs = ((k.lower().encode(), v.encode()) for k, v in _HEADERS.items())
                message["headers"] = [*message.get("headers", ()), *pairs]
            await send(message)

        answer = self._refusal(request)
        await (answer or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a caller who is not let in, or who has just shown the token."""
        if request.headers.get("host", "") not in self._hosts:
            return _words(421, "This is no name of the board. Open the address it printed.")
        if request.method not in ("GET", "HEAD"):
            return _words(405, "The board can only be read.")
        # A cookie of this host goes with requests of any page on it, whatever its port.
        # A link to /open may be in a page, such as a terminal's; so is then what /open leads to.
        path, to = request.url.path, request.headers.get("sec-fetch-dest", "")
        is_entry = path == "/open" or (path == "/" and to == "document")
        site = request.headers.get("sec-fetch-site", "")
        if not is_entry and site in ("same-site", "cross-site"):
            return _words(403, "Only the board itself may ask this.")
        shown = request.cookies.get(self._cookie, "")
        if secrets.compare_digest(shown.encode(), self._session.encode()):
            return None
        if request.url.path != "/open":
            return _words(
                403, "Open the address that bireme ui has printed; it works once, in one browser."
            )
        given = request.query_params.get("token", "")
        if self._token is None or not secrets.compare_digest(given.encode(), self._token.encode()):
            return _words(
                403,
                "This address has been used, or is another's. Run bireme ui again for a new one.",
            )
        self._token = None
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return answer


def _words(status: int, text: str) -> Response:
    return Response(f"{text}\n", status_code=status, media_type="text/plain")


@dataclass(slots=True)
class Board:
    """Makes the pages of ``source``."""

    source: Live | Recorded
    _templates: Jinja2Templates = field(init=False)

    def __post_init__(self) -> None:
        self._templates = Jinja2Templates(HERE / "templates")
        self._templates.env.trim_blocks = self._templates.env.lstrip_blocks = True
        self._templates.env.filters |= {
            "duration": duration,
            "clock": clock_time,
            "cleaned": lambda text: cleaned(str(text)),
        }
        self._templates.env.globals |= {
            "bar": drawing.bar,
            "starts_in": starts_in,
            "amount": drawing.amount,
        }

    def app(self) -> FastAPI:
        """Return the application, still without its guard."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
        page = app.get
        page("/", response_class=HTMLResponse)(self.board)
        page("/waiting", response_class=HTMLResponse)(self.waiting)
        page("/running", response_class=HTMLResponse)(self.running)
        page("/nodes", response_class=HTMLResponse)(self.nodes)
        page("/timeline", response_class=HTMLResponse)(self.timeline)
        page("/policies", response_class=HTMLResponse)(self.policies)
        page("/pools", response_class=HTMLResponse)(self.pools)
        page("/job/{namespace}/{name}", response_class=HTMLResponse)(self.job)
        page("/what-if/{namespace}/{name}", response_class=HTMLResponse)(self.ask)
        page("/log/{namespace}/{pod}", response_class=HTMLResponse)(self.log)
        page("/events")(self.events)
        app.exception_handler(404)(self._not_found)
        return app

    # --- pages ---

    async def board(self, request: Request) -> Response:
        view = await self._view(request)
        line = in_order(view.lines)
        held = sum(gang.gpus or 0 for gang in view.running)
        return self._page(
            request,
            "board.html",
            view,
            summary={
                "held": held,
                "there": sum(u.used + u.kept + u.free + u.closed for u in view.capacity),
                "ready": sum("not ready" not in node.remarks for node in view.nodes),
                "running": len(view.running),
                "waiting": len(line),
                "asked": sum(gang.gpus or 0 for gang in line),
            },
            line=line[:_FIRST_ROWS],
            running=view.running[:_FIRST_ROWS],
            queues=drawing.queue_bars(view.queues),
        )

    async def waiting(self, request: Request) -> Response:
        view = await self._view(request)
        return self._table(request, "waiting.html", view, in_order(view.lines))

    async def running(self, request: Request) -> Response:
        view = await self._view(request)
        return self._table(request, "running.html", view, view.running)

    async def nodes(self, request: Request) -> Response:
        view = await self._view(request)
        rows, first, pages = _paged(request, list(view.nodes))
        colour = drawing.colours(view)
        return self._page(
            request,
            "nodes.html",
            view,
            domains=drawing.domains(rows, colour),
            pages=pages,
            number=first,
            legend=drawing.legend(rows, colour),
            scattered=sum(use.scattered for use in view.capacity),
            free=sum(use.free for use in view.capacity),
        )

    async def timeline(self, request: Request) -> Response:
        view = await self._view(request)
        return self._page(request, "timeline.html", view, chart=drawing.timeline(view))

    async def policies(self, request: Request) -> Response:
        view = await self._view(request)
        listed = view.policies
        if listed is not None:
            # Those that decide come before their shadows.
            listed = sorted(listed, key=lambda p: (p["spec"].get("stage") == "Shadow", _name(p)))
        return self._page(request, "policies.html", view, policies=listed)

    async def pools(self, request: Request) -> Response:
        view = await self._view(request)
        pools = [(pool, drawing.forecast(pool)) for pool in view.pools or ()]
        return self._page(request, "pools.html", view, pools=pools)

    async def job(self, request: Request, namespace: str, name: str) -> Response:
        view = await self._view(request)
        gang = view.line_of((namespace, name))
        if gang is None:
            return self._no_job(request, view, namespace, name)
        line = in_order(view.lines)
        queue = view.queue_manifests.get(gang.queue)
        explanation = Explanation(gang, line, queue, view.now)
        # Before the API server is asked: the job may be deleted meanwhile.
        fields = await self._fields(gang, view, {}) if gang.waits else None
        known: dict[str, Any] = {}
        if isinstance(self.source, Live):
            known = {
                "status": self.source.manifest(gang)["status"],
                "events": await self.source.events(gang),
                "pods": await self.source.pods_of(gang),
                # For those who may not list nodes, on which they would be drawn.
                "kept_on": self.source.kept_on(gang),
            }
        kept = [node for node in view.nodes if gang.key in node.kept_for]
        places = [(n.name, n.domain, n.held[gang.key]) for n in view.nodes if gang.key in n.held]
        return self._page(
            request,
            "job.html",
            view,
            gang=gang,
            why=explanation.text(),
            ahead=explanation.ahead[:_FIRST_ROWS],
            more=max(0, len(explanation.ahead) - _FIRST_ROWS),
            places=places,
            kept=[
                (tile, tile.row.kept_for[gang.key])
                for tile in drawing.tiles(kept[:_ROWS], drawing.colours(view))
            ],
            kept_more=max(0, len(kept) - _ROWS),
            kept_devices=sum(node.kept_for[gang.key] for node in kept),
            factors=drawing.factors(gang),
            losses=drawing.losses(known.get("status") or {}),
            fields=fields,
            **known,
        )

    async def ask(self, request: Request, namespace: str, name: str) -> Response:
        """Show the form, and the answer where it was sent."""
        view = await self._view(request)
        gang = view.line_of((namespace, name))
        if gang is None:
            return self._no_job(request, view, namespace, name)
        given = {key: cleaned(value) for key, value in request.query_params.items()}
        # Before the answer: the job may be deleted while it is awaited.
        fields = await self._fields(gang, view, given)
        told, fault = "", ""
        if questions.is_asked(given):
            try:
                told = what_if.text(await self._answered(gang, view, given))
            except BiremeError as error:
                fault = cleaned(str(error))
        return self._page(
            request,
            "what_if.html",
            view,
            gang=gang,
            fields=fields,
            told=told,
            fault=fault,
            is_still=True,
        )

    async def _answered(
        self, gang: GangLine, view: View, given: Mapping[str, str]
    ) -> what_if.Answered:
        asked = questions.asked(gang, given)
        if isinstance(self.source, Live):
            return await self.source.answer(asked)
        return await self.source.answer(asked, questions.classes(given), view.cycle or 0)

    async def _fields(
        self, gang: GangLine, view: View, given: Mapping[str, str]
    ) -> list[questions.Field]:
        source, queues = self.source, tuple(sorted(queue.name for queue in view.queues))
        is_recorded = isinstance(source, Recorded)
        if isinstance(source, Live):
            tasks = source.tasks(gang)
        else:
            tasks = await asyncio.to_thread(source.tasks, gang, view.cycle or 0)
        return list(questions.fields(gang, tasks, queues, given, is_recorded=is_recorded))

    async def log(self, request: Request, namespace: str, pod: str) -> Response:
        view = await self._view(request)
        if not isinstance(self.source, Live):
            return self._missing(request, view, "Logs are not part of a record.")
        try:
            text = await self.source.log(namespace, pod, _LOG_LINES)
        except ConsoleError as error:
            return self._missing(request, view, str(error))
        text = "\n".join(map(cleaned, text.splitlines()))
        return self._page(
            request, "log.html", view, namespace=namespace, pod=pod, text=text, lines=_LOG_LINES
        )

    async def events(self, request: Request) -> Response:
        """Send a message after each change since the page was made, at most one a second."""
        text = request.query_params.get("seen", "")
        known = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1

        async def stream() -> AsyncIterator[str]:
            seen = known
            yield "retry: 2000\n\n"
            while True:
                waited = 0.0
                while self.source.version == seen and waited < _BEAT_SECONDS:
                    if isinstance(self.source, Live):
                        self.source.refresh()
                    await asyncio.sleep(_EVENT_SECONDS)
                    waited += _EVENT_SECONDS
                is_live = not isinstance(self.source, Live) or self.source.is_live
                kind = "change" if self.source.version != seen else "beat"
                seen = self.source.version
                yield f"event: {kind}\ndata: {'live' if is_live else 'interrupted'}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    # --- what they share ---

    async def _view(self, request: Request) -> View:
        if isinstance(self.source, Live):
            self.source.refresh()
            return self.source.view()
        number = request.query_params.get("cycle", "")
        last = len(self.source.times) - 1
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 12 else last
        # It may take seconds, in which the browser asks for a style sheet.
        return await asyncio.to_thread(self.source.view, at)

    def _page(self, request: Request, template: str, view: View, **known: Any) -> Response:
        frame = self._frame(request, view)
        context = {
            "view": view,
            "colour": drawing.colours(view),
            "now": view.now,
            "GPU": GPU,
            **frame,
            **known,
        }
        return self._templates.TemplateResponse(request, template, context)

    def _frame(self, request: Request, view: View) -> Mapping[str, Any]:
        cycles = None
        if isinstance(self.source, Recorded):
            cycles = {"at": view.cycle, "last": len(self.source.times) - 1}
        is_part = request.headers.get("x-board-part") == "main"
        return {
            "layout": "part.html" if is_part else "page.html",
            "path": request.url.path,
            "version": view.version,
            "cycles": cycles,
            "carry": f"?cycle={cycles['at']}" if cycles else "",
        }

    def _table(
        self, request: Request, template: str, view: View, lines: list[GangLine]
    ) -> Response:
        wanted = request.query_params.get("find", "").strip()
        found = [line for line in lines if wanted in line.key or wanted == line.queue]
        rows, first, pages = _paged(request, found)
        return self._page(
            request,
            template,
            view,
            rows=rows,
            pages=pages,
            number=first,
            find=wanted,
            total=len(lines),
            found=len(found),
        )

    def _missing(self, request: Request, view: View, text: str) -> Response:
        answer = self._page(request, "missing.html", view, text=text)
        answer.status_code = 404
        return answer

    def _no_job(self, request: Request, view: View, namespace: str, name: str) -> Response:
        text = f"No job {cleaned(namespace)}/{cleaned(name)} is there."
        return self._missing(request, view, text)

    async def _not_found(self, request: Request, _: Exception) -> Response:
        view = await self._view(request)
        return self._missing(request, view, f"There is no page {cleaned(request.url.path)}.")


def _paged(request: Request, rows: list[Any]) -> tuple[list[Any], int, int]:
    """Return the rows of the page asked for, its number, and how many pages there are."""
    pages = max(1, -(-len(rows) // _ROWS))
    text = request.query_params.get("page", "1")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    number = max(1, min(number, pages))
    return rows[(number - 1) * _ROWS : number * _ROWS], number, pages


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])
