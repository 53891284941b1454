# The bot's own image. Build: docker build -t gpurun .
# Python's official slim image by digest is set by whoever builds; the default is a moving tag on purpose, so that a
# build without arguments gets security fixes.
ARG BASE=python:3.12-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/gpurun
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY bot ./bot
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --system --create-home --home-dir /var/lib/gpurun gpurun
USER gpurun
ENV GPURUN_STATE_DIR=/var/lib/gpurun GPURUN_HOST=0.0.0.0
VOLUME /var/lib/gpurun
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
CMD ["gpurun", "serve"]
