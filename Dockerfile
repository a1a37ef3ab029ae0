# The images of Bireme, without torch: docs/images.md says what is in them and how they are built.
#   bireme            operator, extender and command line, learned policies included
#   bireme-forecast   the same and what the nightly forecast needs
#   bireme-lab        the first with the policies of research and the commands of the lab
# Every package comes by hash, from the index that the build host's pip uses: a pip configuration
# file may be given as secret "pip".
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS wheel
RUN python -m venv --without-pip /opt/build
COPY image/build.txt /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/var/cache/pip \
    pip --cache-dir /var/cache/pip --python /opt/build/bin/python install --require-hashes -r /tmp/build.txt
COPY . /source
RUN pip --python /opt/build/bin/python wheel --no-build-isolation --no-deps --no-index -w /wheel /source \
    && pip --python /opt/build/bin/python wheel --no-build-isolation --no-deps --no-index -w /lab /source/policies

# What changes seldom: one layer, shared by versions.
FROM ${BASE} AS packages
RUN python -m venv --without-pip /opt/bireme
COPY image/bireme.txt tools/images/installed.py /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/var/cache/pip \
    pip --cache-dir /var/cache/pip --python /opt/bireme/bin/python install --no-compile --only-binary :all: \
        --require-hashes -r /tmp/bireme.txt \
    && python /tmp/installed.py remove /opt/bireme

# What changes with every version: Bireme itself, and the bytecode of all that its programs import.
FROM packages AS program
ENV ORT_DISABLE_TELEMETRY=1
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/bireme/bin/python install --no-compile --no-deps --no-index --root /layer /wheel/*.whl \
    && cp -a /layer/. / \
    && /opt/bireme/bin/python /tmp/installed.py compile /layer

# The same two for the forecast: what it needs beyond the packages of all, and its bytecode.
FROM packages AS forecast-packages
COPY image/forecast.txt /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/var/cache/pip \
    pip --cache-dir /var/cache/pip --python /opt/bireme/bin/python install --no-compile --only-binary :all: --root /layer \
        --require-hashes -r /tmp/forecast.txt \
    && python /tmp/installed.py remove /layer/opt/bireme

FROM program AS forecast-program
COPY --from=forecast-packages /layer /
RUN cp -a /layer/. / && rm -r /layer && /opt/bireme/bin/python /tmp/installed.py compile /layer

# The lab, which needs no package beyond those.
FROM program AS lab-program
COPY --from=wheel /lab /lab
RUN cp -a /layer/. / && rm -r /layer \
    && pip --python /opt/bireme/bin/python install --no-compile --no-deps --no-index --root /layer /lab/*.whl \
    && cp -a /layer/. / \
    && /opt/bireme/bin/python /tmp/installed.py compile /layer

FROM ${BASE} AS bireme
ARG VERSION=
LABEL org.opencontainers.image.title="bireme" \
      org.opencontainers.image.description="Learned gang scheduling for distributed training jobs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Nothing is written, bytecode least of all: what programs import has been compiled beforehand.
ENV PATH=/opt/bireme/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/opt/bireme/bytecode \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1
COPY --from=packages /opt/bireme /opt/bireme
COPY --from=program /layer /
USER 65532:65532
ENTRYPOINT ["bireme"]
CMD ["--help"]

FROM bireme AS bireme-forecast
LABEL org.opencontainers.image.title="bireme-forecast"
COPY --from=forecast-packages /layer /
COPY --from=forecast-program /layer /

FROM bireme AS bireme-lab
LABEL org.opencontainers.image.title="bireme-lab"
COPY --from=lab-program /layer /
