# A small image of redrive: no root, nothing to write to but /tmp, and a health check. An application's own begins with it:
#   FROM redrive:latest
#   COPY --chown=root:root . /app
# and installs what it needs besides into /opt/redrive. redrive.toml belongs into /app.
FROM python:3.12-slim AS build
WORKDIR /build
COPY requirements/run.txt requirements/build.txt requirements/
RUN python -m venv /opt/redrive \
  && /opt/redrive/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt \
  && python -m venv /opt/build \
  && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
RUN /opt/build/bin/python -m build --no-isolation --wheel --outdir /dist . \
  && /opt/redrive/bin/pip install --no-cache-dir --no-deps /dist/*.whl \
  && /opt/redrive/bin/python -m compileall -q /opt/redrive/lib

FROM python:3.12-slim
RUN useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin redrive && mkdir /app
COPY --from=build /opt/redrive /opt/redrive
ENV PATH=/opt/redrive/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app
WORKDIR /app
USER 10001:10001
STOPSIGNAL SIGTERM
EXPOSE 8321 9108
# The worker's own port, or that of redrive up.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["python", "-c", "\
import sys, urllib.request\n\
for port in (9108, 8321):\n\
    try:\n\
        urllib.request.urlopen(f'http://127.0.0.1:{port}/healthz', timeout=2)\n\
        sys.exit(0)\n\
    except OSError:\n\
        pass\n\
sys.exit(1)"]
ENTRYPOINT ["redrive"]
CMD ["work", "--metrics-port", "9108", "--metrics-host", "0.0.0.0"]
