// The run-time of CUDA kernels on a CPU: the threads of a block are fibers, blocks run one after the other. A fiber runs until it
// waits; barriers and exchanges within a warp are meetings, and who cannot meet is reported with its line.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// What kernels call; all else stays inside.
#define TE_EXPORT extern "C" __attribute__((visibility("default")))

struct te_index3 { unsigned x, y, z; };
struct te_place { te_index3 thread, block, block_size, grid_size; };

namespace {

constexpr std::size_t kStack = 256 << 10;

enum State { kReady, kBarrier, kWarp, kLeft };

struct Fiber {
  te_place place;
  State state = kReady;
  int line = 0;
  unsigned mask = 0;
  uint64_t value = 0, result = 0;
  int lane = 0;
  char *stack = nullptr;
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
};

std::vector<Fiber> fibers;
std::vector<char *> stacks;
Fiber *current = nullptr;
void (*entry)(void **) = nullptr;
void **arguments = nullptr;
char report[512];

void complain(const char *format, ...) {
  if (report[0]) return;
  va_list rest;
  va_start(rest, format);
  std::vsnprintf(report, sizeof report, format, rest);
  va_end(rest);
}

}  // namespace

TE_EXPORT te_place *te_here = nullptr;

#if defined(__x86_64__)
TE_EXPORT void te_switch(void **save, void *load);
asm(R"(
.text
.globl te_switch
.type te_switch, @function
te_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
namespace {
void *scheduler_sp = nullptr;
void to_scheduler() { te_switch(&current->sp, scheduler_sp); }
void to_fiber(Fiber &f) { te_switch(&scheduler_sp, f.sp); }
void body() {
  entry(arguments);
  current->state = kLeft;
  to_scheduler();
}
void prepare(Fiber &f) {
  uintptr_t top = (uintptr_t)(f.stack + kStack) & ~uintptr_t(15);
  void **sp = (void **)(top - 8);  // a function is entered with the stack at 8 modulo 16
  *--sp = (void *)&body;
  for (int k = 0; k < 6; ++k) *--sp = nullptr;
  f.sp = sp;
}
}  // namespace
#else
namespace {
ucontext_t scheduler;
void to_scheduler() { swapcontext(&current->context, &scheduler); }
void to_fiber(Fiber &f) { swapcontext(&scheduler, &f.context); }
void body() {
  entry(arguments);
  current->state = kLeft;
  to_scheduler();
}
void prepare(Fiber &f) {
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStack;
  f.context.uc_link = nullptr;
  makecontext(&f.context, body, 0);
}
}  // namespace
#endif

TE_EXPORT void te_host_barrier(int line) {
  current->state = kBarrier;
  current->line = line;
  to_scheduler();
}

TE_EXPORT uint64_t te_host_shuffle(unsigned mask, uint64_t value, int lane, int line) {
  current->state = kWarp;
  current->line = line;
  current->mask = mask;
  current->value = value;
  current->lane = lane;
  to_scheduler();
  return current->result;
}

TE_EXPORT void te_host_misaligned(const void *address, int size, int line) {
  complain("line %d: an access of %d bytes at %p, which is no multiple of them", line, size, address);
}

TE_EXPORT uint64_t te_host_exchange(void *address, int size, uint64_t compare, uint64_t value) {
  uint64_t old = 0;
  std::memcpy(&old, address, size);
  if (old == compare) std::memcpy(address, &value, size);
  return old;
}

namespace {

void run(Fiber &f) {
  current = &f;
  te_here = &f.place;
  f.state = kReady;
  to_fiber(f);
}

// Lanes of one warp that wait at the same exchange and whose masks name just each other get their values.
bool meet(unsigned first, unsigned count) {
  bool any = false;
  for (unsigned k = 0; k < count; ++k) {
    Fiber &f = fibers[first + k];
    if (f.state != kWarp) continue;
    bool all = (f.mask >> k) & 1u;
    if (!all) {
      complain("line %d: thread %u is not in the mask 0x%08x of its own exchange", f.line, f.place.thread.x, f.mask);
      return false;
    }
    for (unsigned j = 0; j < 32 && all; ++j) {
      if (!((f.mask >> j) & 1u)) continue;
      if (j >= count || fibers[first + j].state == kLeft) {
        complain("line %d: lane %u of the mask 0x%08x is not there", f.line, j, f.mask);
        return false;
      }
      const Fiber &g = fibers[first + j];
      all = g.state == kWarp && g.line == f.line && g.mask == f.mask;
    }
    if (!all) continue;
    for (unsigned j = 0; j < count; ++j) {
      if (!((f.mask >> j) & 1u)) continue;
      Fiber &g = fibers[first + j];
      unsigned from = (unsigned)g.lane;
      if (from >= count || !((f.mask >> from) & 1u)) {
        complain("line %d: lane %u asks lane %u, which is not in the mask 0x%08x", g.line, j, from, f.mask);
        return false;
      }
      g.result = fibers[first + from].value;
    }
    for (unsigned j = 0; j < count; ++j)
      if ((f.mask >> j) & 1u) fibers[first + j].state = kReady;
    any = true;
  }
  return any;
}

bool run_block(unsigned threads, const std::vector<unsigned> &order) {
  for (;;) {
    bool moved = false;
    for (unsigned k : order) {
      if (fibers[k].state == kReady) {
        run(fibers[k]);
        moved = true;
        if (report[0]) return false;
      }
    }
    for (unsigned first = 0; first < threads; first += 32) {
      moved |= meet(first, threads - first < 32 ? threads - first : 32);
      if (report[0]) return false;
    }
    if (moved) continue;
    unsigned waiting = 0, left = 0;
    int line = 0;
    for (unsigned k = 0; k < threads; ++k) {
      if (fibers[k].state == kLeft) ++left;
      if (fibers[k].state == kBarrier) {
        if (waiting && fibers[k].line != line) {
          complain("threads of one block wait at different barriers: lines %d and %d", line, fibers[k].line);
          return false;
        }
        line = fibers[k].line;
        ++waiting;
      }
    }
    if (left == threads) return true;
    if (waiting + left != threads) {
      for (unsigned k = 0; k < threads; ++k)
        if (fibers[k].state == kWarp) complain("line %d: an exchange within a warp that not all lanes of its mask reach", fibers[k].line);
      return false;
    }
    // Threads that left no longer count at a barrier (compute capability 7 and later).
    for (unsigned k = 0; k < threads; ++k)
      if (fibers[k].state == kBarrier) fibers[k].state = kReady;
  }
}

}  // namespace

// Runs a grid. `alone` says that threads never wait, so that each is a plain call. `order`: 0 forward, 1 backward, else the seed
// of a permutation of the threads of a block. Gives null, or what went wrong.
TE_EXPORT const char *te_launch(
    void (*enter)(void **), void **given, unsigned blocks, unsigned threads, int alone, unsigned order, char *shared, char *shared_end) {
  report[0] = 0;
  entry = enter;
  arguments = given;
  std::vector<unsigned> sequence(threads);
  for (unsigned k = 0; k < threads; ++k) sequence[k] = order == 1 ? threads - 1 - k : k;
  if (order > 1) {
    uint64_t state = order;
    for (unsigned k = threads; k > 1; --k) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      unsigned j = (unsigned)((state >> 33) % k);
      unsigned kept = sequence[k - 1];
      sequence[k - 1] = sequence[j];
      sequence[j] = kept;
    }
  }
  fibers.assign(threads, Fiber());
  for (unsigned k = 0; k < threads && !alone; ++k) {
    if (k >= stacks.size()) {
      void *memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) return "no memory for the stacks of a block";
      stacks.push_back((char *)memory);
    }
    fibers[k].stack = stacks[k];
  }
  for (unsigned n = 0; n < blocks; ++n) {
    unsigned block = order == 1 ? blocks - 1 - n : n;
    if (shared != shared_end) std::memset(shared, 0xff, (std::size_t)(shared_end - shared));
    for (unsigned k = 0; k < threads; ++k) {
      Fiber &f = fibers[k];
      f.place = {{k, 0, 0}, {block, 0, 0}, {threads, 1, 1}, {blocks, 1, 1}};
      f.state = kReady;
      if (!alone) prepare(f);
    }
    if (alone) {
      for (unsigned k : sequence) {
        current = &fibers[k];
        te_here = &fibers[k].place;
        entry(arguments);
      }
    } else if (!run_block(threads, sequence)) {
      break;
    }
  }
  te_here = nullptr;
  return report[0] ? report : nullptr;
}
