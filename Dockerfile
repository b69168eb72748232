# A wheel from dist/ (`make wheel`), run by a user without rights. Python is the one that the wheel's kernels are for.
FROM python:3.11-slim-bookworm

RUN useradd --create-home --uid 10001 consilience
COPY dist/consilience-*.whl /tmp/wheel/
RUN pip install --no-cache-dir /tmp/wheel/consilience-*.whl && rm -r /tmp/wheel

USER 10001
WORKDIR /data
ENTRYPOINT ["consilience"]
CMD ["--help"]
