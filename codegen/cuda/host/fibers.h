// The threads of the block that runs, and what of theirs is under way.
#pragma once
#include "runtime.h"
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace te {

constexpr unsigned kGroup = 128;  // threads of a warpgroup

enum State { kReady, kBarrier, kWarp, kProduct, kLeft };

// An asynchronous copy that is under way, and in which group of its thread.
struct Copy {
  char *to;
  const char *from;
  int bytes, filled;
  unsigned group;
};

// As `te_group_work` of host.h.
struct Work {
  void (*run)(float **sums, uint64_t a, uint64_t b);
  void (*chunks)(uint64_t a, uint64_t b, void (*visit)(char *chunk));
  float *const *sums;
  int count;
  uint64_t a, b;
};

// A product of a warpgroup that is under way: the sums of all its lanes, and how many batches its threads had committed before.
struct Product {
  Work work;
  std::vector<float *> sums;
  unsigned batch;
};

struct Fiber {
  te_place place;
  unsigned number = 0;
  State state = kReady;
  int line = 0;
  unsigned mask = 0;
  uint64_t value = 0, result = 0;
  int lane = 0;
  void (*combine)(void **) = nullptr;  // of a collective operation of the warp: what it makes of the operands
  void *operands = nullptr;
  bool orders = false;  // whether the meeting is a barrier of the warp
  unsigned group = 0;   // of asynchronous copies
  std::vector<Copy> copies;
  const Work *work = nullptr;  // the product of its warpgroup that it waits at
  bool entered = false;        // whether its sums are the machine's
  unsigned batches = 0, waited = 0;  // of products: committed, and waited for
  uint32_t handed = 0;
  char *stack = nullptr;
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
};

extern std::vector<Fiber> fibers;
extern Fiber *current;
extern te_grid grid;
extern std::vector<std::vector<Product>> products;  // under way, of each warpgroup

// The thread that runs waits for others, at a line.
void wait_as(State state, int line);
// Threads of the warpgroup that begins with a number go on where they have all come to one product; whether they do.
bool multiply(unsigned first, unsigned count);

}  // namespace te
