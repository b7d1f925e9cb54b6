/* Lends threads to calls: the same bits as without, however many there are. Prints how many parts
 * were run. */
#include "shared.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Part {
  pthread_t thread;
  void (*run)(void *argument, int64_t i);
  void *argument;
  int64_t number;
} Part;

static void *start(void *part) {
  Part *own = part;
  own->run(own->argument, own->number);
  return NULL;
}

static void run(void *context, int64_t parts, void (*part)(void *, int64_t), void *argument) {
  int64_t *count = context;
  Part all[8];
  if (parts < 2 || parts > 8) abort();
  for (int64_t i = 0; i < parts; ++i) {
    all[i] = (Part){.run = part, .argument = argument, .number = i};
    if (pthread_create(&all[i].thread, NULL, start, &all[i])) abort();
  }
  for (int64_t i = 0; i < parts; ++i) pthread_join(all[i].thread, NULL);
  *count += parts;
}

static void *workspace(size_t bytes) {
  return aligned_alloc(64, (bytes + 127) / 64 * 64);
}

int main(void) {
  enum { N = 5, IN = 70 * 64, OUT = 70 * 48 };
  static float x[N * IN], want[N * OUT], got[N * OUT];
  for (int i = 0; i < N * IN; ++i) x[i] = (float)((i * 7919) % 997) / 499 - 1;
  if (mithril_shared(N, x, want, workspace(mithril_shared_workspace_bytes(N)))) return 1;
  int64_t count = 0;
  for (int64_t threads = 0; threads <= 8; ++threads) {
    struct mithril_threads lent = {.count = threads, .run = run, .context = &count};
    void *memory = workspace(mithril_shared_parallel_workspace_bytes(N, threads));
    memset(got, 0, sizeof got);
    if (mithril_shared_parallel(N, x, got, memory, threads > 0 ? &lent : NULL)) return 2;
    if (memcmp(got, want, sizeof got) != 0) return 3;
    if ((count > 0) != (threads > 1)) return 4;
    free(memory);
  }
  if (mithril_shared_parallel_workspace_bytes(N, 4097) != SIZE_MAX) return 5;
  if (mithril_shared_parallel_workspace_bytes(N, -1) != SIZE_MAX) return 6;
  printf("%lld\n", (long long)count);
  return 0;
}
