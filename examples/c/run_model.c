/* Runs the model that export_model.py exported: points in, one "x y score" line per point out.

       python export_model.py spirals
       cc -O2 -Ispirals run_model.c -Lspirals -lspirals -Wl,-rpath,spirals -o run_model
       echo "1.0 0.0  -1.0 0.2" | ./run_model spirals/constants.safetensors

   No Python and no compiler of ours take part. The constants are mapped read-only, so processes share them. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "spirals.h"

enum { MOST = 1024 };

static const char *map_constants(const char *path) {
  struct stat status;
  int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &status) || status.st_size < SPIRALS_CONSTANTS_OFFSET + SPIRALS_CONSTANTS_BYTES) return NULL;
  const char *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? NULL : data + SPIRALS_CONSTANTS_OFFSET;
}

int main(int count, char **arguments) {
  static float points[MOST][2], scores[MOST];
  const char *constants = count == 2 ? map_constants(arguments[1]) : NULL;
  if (!constants) {
    fprintf(stderr, "usage: run_model CONSTANTS < POINTS\n");
    return 2;
  }
  if (spirals_variant() < 0) {
    fprintf(stderr, "the bundle has no code for this CPU\n");
    return 2;
  }
  int64_t n = 0;
  while (n < MOST && scanf("%f %f", &points[n][0], &points[n][1]) == 2) n++;

  void *placeholders[SPIRALS_SCORE_PLACEHOLDERS];
  placeholders[SPIRALS_SCORE_POINTS] = points;
  placeholders[SPIRALS_SCORE_SCORE] = scores;
  int64_t sizes[] = {[SPIRALS_SCORE_SIZE_N] = n}, error[2];

  int64_t bytes = spirals_score_workspace(sizes);
  void *workspace = bytes ? aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64) : NULL;
  int64_t status = spirals_score(constants, placeholders, sizes, workspace, error);
  free(workspace);
  if (status) {
    fprintf(stderr, "failed with status %" PRId64 "\n", status);
    return 1;
  }
  for (int64_t i = 0; i < n; i++) printf("%g %g %a\n", points[i][0], points[i][1], scores[i]);
  return 0;
}
