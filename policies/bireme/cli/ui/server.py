"""The pages of the board, served on loopback to one person.

The address that ``bireme ui`` prints holds a token that works once; the browser that opens it gets
a cookie. The guard refuses everything else, and requests for another host: a foreign page could
have its own name point at this machine. Pages load, run and style nothing but their own files, and
can change nothing.
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

UI_FOLDER: Final = Path(__file__).parent
_ROWS: Final = 100
"""Rows of a table on one page: a browser is slow with thousands."""
_FIRST_ROWS: Final = 15
_LOG_LINES: Final = 500
_EVENT_SECONDS: Final = 1.0
"""Minimum time between two renewals of a page."""
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
        # Browsers keep cookies by host alone: two boards on two ports need two.
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
        """Return the answer to a caller who is refused, or who has just presented the token."""
        if request.headers.get("host", "") not in self._hosts:
            return _text_response(
                421, "The board does not serve this host name. Open the address that it printed."
            )
        if request.method not in ("GET", "HEAD"):
            return _text_response(405, "The board can only be read.")
        # Browsers send the cookie of this host with requests of any page on it, whatever its port.
        # A link to /open may be on a page, such as a terminal's; so may its target be then.
        path, to = request.url.path, request.headers.get("sec-fetch-dest", "")
        is_entry = path == "/open" or (path == "/" and to == "document")
        site = request.headers.get("sec-fetch-site", "")
        if not is_entry and site in ("same-site", "cross-site"):
            return _text_response(403, "Only pages of the board may send this request.")
        cookie = request.cookies.get(self._cookie, "")
        if secrets.compare_digest(cookie.encode(), self._session.encode()):
            return None
        if request.url.path != "/open":
            return _text_response(
                403, "Open the address that bireme ui has printed; it works once, in one browser."
            )
        token = request.query_params.get("token", "")
        if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
            return _text_response(
                403,
                "This address was used already, or belongs to another user. Run bireme ui again "
                "for a new one.",
            )
        self._token = None
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return answer


def _text_response(status: int, text: str) -> Response:
    return Response(f"{text}\n", status_code=status, media_type="text/plain")


@dataclass(slots=True)
class Board:
    """Makes the pages of ``source``."""

    source: Live | Recorded
    _templates: Jinja2Templates = field(init=False)

    def __post_init__(self) -> None:
        self._templates = Jinja2Templates(UI_FOLDER / "templates")
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
        app.mount("/static", StaticFiles(directory=UI_FOLDER / "static"), name="static")
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
        used_gpus = sum(gang.gpus or 0 for gang in view.running)
        return self._page(
            request,
            "board.html",
            view,
            summary={
                "held": used_gpus,
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
        rows, first, pages = _page_rows(request, list(view.nodes))
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
            # Policies that decide come before shadows.
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
        # Before the requests to the API server: the job may be deleted meanwhile.
        fields = await self._fields(gang, view, {}) if gang.waits else None
        live_facts: dict[str, Any] = {}
        if isinstance(self.source, Live):
            live_facts = {
                "status": self.source.manifest(gang)["status"],
                "events": await self.source.events(gang),
                "pods": await self.source.pods_of(gang),
                # For readers who may not list nodes, on which the devices would be drawn.
                "kept_on": self.source.devices_reserved_on(gang),
            }
        reserved_nodes = [node for node in view.nodes if gang.key in node.kept_for]
        places = [
            (n.name, n.domain, n.gang_devices[gang.key])
            for n in view.nodes
            if gang.key in n.gang_devices
        ]
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
                for tile in drawing.tiles(reserved_nodes[:_ROWS], drawing.colours(view))
            ],
            kept_more=max(0, len(reserved_nodes) - _ROWS),
            kept_devices=sum(node.kept_for[gang.key] for node in reserved_nodes),
            factors=drawing.factors(gang),
            losses=drawing.losses(live_facts.get("status") or {}),
            fields=fields,
            **live_facts,
        )

    async def ask(self, request: Request, namespace: str, name: str) -> Response:
        """Show the form, and the answer if the form was sent."""
        view = await self._view(request)
        gang = view.line_of((namespace, name))
        if gang is None:
            return self._no_job(request, view, namespace, name)
        parameters = {key: cleaned(value) for key, value in request.query_params.items()}
        # Before the answer: the job may be deleted while it is awaited.
        fields = await self._fields(gang, view, parameters)
        answer_text, fault = "", ""
        if questions.is_asked(parameters):
            try:
                answer_text = what_if.text(await self._answer(gang, view, parameters))
            except BiremeError as error:
                fault = cleaned(str(error))
        return self._page(
            request,
            "what_if.html",
            view,
            gang=gang,
            fields=fields,
            told=answer_text,
            fault=fault,
            is_still=True,
        )

    async def _answer(
        self, gang: GangLine, view: View, parameters: Mapping[str, str]
    ) -> what_if.Answered:
        question = questions.question_of(gang, parameters)
        if isinstance(self.source, Live):
            return await self.source.answer(question)
        return await self.source.answer(question, questions.classes(parameters), view.cycle or 0)

    async def _fields(
        self, gang: GangLine, view: View, parameters: Mapping[str, str]
    ) -> list[questions.Field]:
        source, queues = self.source, tuple(sorted(queue.name for queue in view.queues))
        is_recorded = isinstance(source, Recorded)
        if isinstance(source, Live):
            tasks = source.tasks(gang)
        else:
            tasks = await asyncio.to_thread(source.tasks, gang, view.cycle or 0)
        return list(questions.fields(gang, tasks, queues, parameters, is_recorded=is_recorded))

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
        start_version = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1

        async def stream() -> AsyncIterator[str]:
            sent_version = start_version
            yield "retry: 2000\n\n"
            while True:
                waited = 0.0
                while self.source.version == sent_version and waited < _BEAT_SECONDS:
                    if isinstance(self.source, Live):
                        self.source.refresh()
                    await asyncio.sleep(_EVENT_SECONDS)
                    waited += _EVENT_SECONDS
                is_live = not isinstance(self.source, Live) or self.source.is_live
                kind = "change" if self.source.version != sent_version else "beat"
                sent_version = self.source.version
                yield f"event: {kind}\ndata: {'live' if is_live else 'interrupted'}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    # --- shared parts ---

    async def _view(self, request: Request) -> View:
        if isinstance(self.source, Live):
            self.source.refresh()
            return self.source.view()
        number = request.query_params.get("cycle", "")
        last = len(self.source.times) - 1
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 12 else last
        # In a thread: it may take seconds, while the browser asks for style sheets.
        return await asyncio.to_thread(self.source.view, index)

    def _page(self, request: Request, template: str, view: View, **values: Any) -> Response:
        frame = self._frame(request, view)
        context = {
            "view": view,
            "colour": drawing.colours(view),
            "now": view.now,
            "GPU": GPU,
            **frame,
            **values,
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
        search_text = request.query_params.get("find", "").strip()
        matches = [line for line in lines if search_text in line.key or search_text == line.queue]
        rows, first, pages = _page_rows(request, matches)
        return self._page(
            request,
            template,
            view,
            rows=rows,
            pages=pages,
            number=first,
            find=search_text,
            total=len(lines),
            found=len(matches),
        )

    def _missing(self, request: Request, view: View, text: str) -> Response:
        answer = self._page(request, "missing.html", view, text=text)
        answer.status_code = 404
        return answer

    def _no_job(self, request: Request, view: View, namespace: str, name: str) -> Response:
        text = f"There is no job {cleaned(namespace)}/{cleaned(name)}."
        return self._missing(request, view, text)

    async def _not_found(self, request: Request, _: Exception) -> Response:
        view = await self._view(request)
        return self._missing(request, view, f"There is no page {cleaned(request.url.path)}.")


def _page_rows(request: Request, rows: list[Any]) -> tuple[list[Any], int, int]:
    """Return the rows of the requested page, its number, and the number of pages."""
    pages = max(1, -(-len(rows) // _ROWS))
    text = request.query_params.get("page", "1")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    number = max(1, min(number, pages))
    return rows[(number - 1) * _ROWS : number * _ROWS], number, pages


def _name(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])
