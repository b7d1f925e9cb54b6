/* Times calls of a layer that was made ahead of time: prints microseconds. */
#include "layer.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

int main(void) {
  static float x[64], w[64], b[8], y[64];
  const mithril_layer_params params = {.linear_w = w, .linear_b = b};
  void *workspace = aligned_alloc(64, (mithril_layer_workspace_bytes() + 127) / 64 * 64);
  double best = 1e9;
  for (int round = 0; round < 50; ++round) {
    double start = now();
    for (int call = 0; call < 1000; ++call)
      if (mithril_layer(x, &params, y, workspace)) return 1;
    double time = (now() - start) / 1000;
    if (time < best) best = time;
  }
  free(workspace);
  printf("%.3f\n", best);
  return 0;
}
