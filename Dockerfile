# A nightly run: docker build -t aliasproof . && docker run -v "$PWD/runs:/runs" aliasproof fuzz --seconds 14400 --run /runs/nightly
# For a nightly of torch: --build-arg TORCH=torch --build-arg INDEX=https://download.pytorch.org/whl/nightly/cpu
FROM python:3.12-slim
ARG TORCH=torch==2.13.0
ARG INDEX=https://download.pytorch.org/whl/cpu
# Inductor compiles by C++.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --pre "$TORCH" --index-url "$INDEX"
COPY . /src
RUN pip install --no-cache-dir /src && rm -rf /src
WORKDIR /runs
ENTRYPOINT ["aliasproof"]
