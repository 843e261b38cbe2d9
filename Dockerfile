# The service with the embedded family, on a CPU:
#
#     docker build -t divtok .
#     docker run -e DIVTOK_TOKEN=$(openssl rand -hex 32) -p 127.0.0.1:8000:8000 divtok
#
# Other models: docker run ... divtok --pair P Q, with their files in a volume.
FROM python:3.12-slim

RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
WORKDIR /divtok
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]'

RUN useradd --create-home divtok
USER divtok
EXPOSE 8000
# Beyond the container, so it does not start without a token.
ENTRYPOINT ["divtok", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--family", "tiny"]
