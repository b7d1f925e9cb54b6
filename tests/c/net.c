/* Calls a network that was made ahead of time: values, gradients, wrong calls, two threads. */
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 9, IN = 6, HIDDEN = 20, OUT = 3, CALLS = 2000 };

static float x[BATCH * IN], w0[IN * HIDDEN], b0[HIDDEN], w1[HIDDEN * OUT], b1[OUT];
static float seed[BATCH * OUT], y[BATCH * OUT];
static float dw0[IN * HIDDEN], db0[HIDDEN], dw1[HIDDEN * OUT], db1[OUT];

static void take(FILE *file, float *array, size_t count) {
  if (fread(array, sizeof *array, count, file) != count) exit(2);
}

static const mithril_net_params params = {
    .linear_0_w = w0, .linear_0_b = b0, .linear_1_w = w1, .linear_1_b = b1};

/* Calls again and again, and compares with what the first call gave. */
static void *work(void *wrong) {
  float own[BATCH * OUT];
  void *workspace = aligned_alloc(64, (mithril_net_workspace_bytes(BATCH) + 127) / 64 * 64);
  for (int call = 0; call < CALLS; ++call) {
    memset(own, 0, sizeof own);
    int status = mithril_net(BATCH, x, &params, own, workspace);
    if (status != MITHRIL_OK || memcmp(own, y, sizeof y)) *(int *)wrong = 1;
  }
  free(workspace);
  return NULL;
}

int main(int argc, char **argv) {
  FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
  if (!file) return 2;
  take(file, x, BATCH * IN);
  take(file, w0, IN * HIDDEN);
  take(file, b0, HIDDEN);
  take(file, w1, HIDDEN * OUT);
  take(file, b1, OUT);
  take(file, seed, BATCH * OUT);
  fclose(file);
  size_t bytes = mithril_net_gradients_workspace_bytes(BATCH);
  char *workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
  const mithril_net_param_gradients gradients = {
      .linear_0_w = dw0, .linear_0_b = db0, .linear_1_w = dw1, .linear_1_b = db1};
  int status = mithril_net_gradients(BATCH, x, seed, &params, y, &gradients, workspace);
  if (status != MITHRIL_OK) return 3;
  if (mithril_net(BATCH, x, &params, y, workspace) != MITHRIL_OK) return 4;
  /* What is wrong with a call is said. */
  if (mithril_net(-1, x, &params, y, workspace) != MITHRIL_ERROR_DIMS) return 5;
  if (mithril_net(INT64_MAX, x, &params, y, workspace) != MITHRIL_ERROR_DIMS) return 6;
  if (mithril_net_workspace_bytes(-1) != SIZE_MAX) return 7;
  if (mithril_net(BATCH, NULL, &params, y, workspace) != MITHRIL_ERROR_NULL) return 8;
  if (mithril_net(BATCH, x, NULL, y, workspace) != MITHRIL_ERROR_NULL) return 9;
  mithril_net_params some = params;
  some.linear_1_b = NULL;
  if (mithril_net(BATCH, x, &some, y, workspace) != MITHRIL_ERROR_NULL) return 10;
  if (bytes == 0) return 14;
  status = mithril_net_gradients(BATCH, x, seed, &params, y, &gradients, NULL);
  if (status != MITHRIL_ERROR_NULL) return 11;
  status = mithril_net_gradients(BATCH, x, seed, &params, y, &gradients, workspace + 4);
  if (status != MITHRIL_ERROR_ALIGNMENT) return 12;
  pthread_t threads[2];
  int wrong[2] = {0, 0};
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, &wrong[i]);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  if (wrong[0] || wrong[1]) return 13;
  free(workspace);
  fwrite(y, sizeof y, 1, stdout);
  fwrite(dw0, sizeof dw0, 1, stdout);
  fwrite(db0, sizeof db0, 1, stdout);
  fwrite(dw1, sizeof dw1, 1, stdout);
  fwrite(db1, sizeof db1, 1, stdout);
  return 0;
}
