// What goes on while threads do: copies to shared memory, and products of warpgroups that read it by themselves. Each is made at one of two
// extremes, as soon as it may be or as late, so that what is missing between shows one way or the other.
#include "fibers.h"
#include <cstring>

using namespace te;

// Copies arrive as soon as they are asked for, so that overwriting what is still read shows, or as late as they may, so that reading
// without a wait does.
namespace {
void arrive(const Copy &copy) {
  std::memcpy(copy.to, copy.from, (std::size_t)copy.filled);
  std::memset(copy.to + copy.filled, 0, (std::size_t)(copy.bytes - copy.filled));
}
}  // namespace

TE_EXPORT void te_host_copy_async(void *to, const void *from, int bytes, int filled) {
  if ((uintptr_t)to % bytes || (filled && (uintptr_t)from % bytes)) te_host_misaligned(to, bytes, 0);
  if (te::checking) {
    if (filled) te::touch(from, (std::size_t)filled, te::kRead, __builtin_return_address(0));
    te::touch(to, (std::size_t)bytes, te::kBegin, __builtin_return_address(0));
  }
  Copy copy = {(char *)to, (const char *)from, bytes, filled, current->group};
  if (grid.late) std::memset(to, 0xff, (std::size_t)bytes);
  else arrive(copy);
  current->copies.push_back(copy);
}

TE_EXPORT void te_host_copies_commit() { ++current->group; }

TE_EXPORT void te_host_copies_wait(int allowed) {
  std::vector<Copy> kept;
  for (const Copy &copy : current->copies) {
    if (copy.group + (unsigned)allowed >= current->group) {
      kept.push_back(copy);
      continue;
    }
    if (grid.late) arrive(copy);
    if (te::checking) te::touch(copy.to, (std::size_t)copy.bytes, te::kFinish, __builtin_return_address(0));
  }
  current->copies = kept;
}

// Addresses in shared memory as a GPU has them: what the launch asked for, then what is declared; each begins at a multiple of the 1024 bytes
// of a pattern of the swizzle.
namespace {
unsigned declared() { return (grid.asked + 1023u) / 1024u * 1024u; }
}  // namespace

TE_EXPORT unsigned te_host_shared(const void *place) {
  const char *at = (const char *)place;
  if (grid.asked && at >= te_host_arena && at < te_host_arena + grid.asked) return (unsigned)(at - te_host_arena);
  if (at >= grid.shared && at < grid.shared_end) return declared() + (unsigned)(at - grid.shared);
  complain("an address in shared memory of what lies elsewhere");
  te::fail();
}

TE_EXPORT char *te_host_place(unsigned address) {
  return address < declared() ? te_host_arena + address : grid.shared + (address - declared());
}

TE_EXPORT void te_host_hand_over() { ++current->handed; }

TE_EXPORT void te_host_group_enter() { current->entered = true; }

TE_EXPORT void te_host_group_commit() { ++current->batches; }

namespace {

void done(Product &product) {
  const bool checking = te::checking;
  te::checking = false;  // it looks into the lanes' own variables
  product.work.run(product.sums.data(), product.work.a, product.work.b);
  te::checking = checking;
}

void hold(char *chunk) { te::hold(chunk, 16, true); }
void release(char *chunk) { te::hold(chunk, 16, false); }
void *reader = nullptr;  // the instruction that reads
void look(char *chunk) { te::touch(chunk, 16, te::kProxy, reader); }

}  // namespace

// A product of all 128 threads of a warpgroup is done when they have met, so that sums and factors that are not there yet show, or when the
// first of them waits for it, so that factors that are overwritten do.
TE_EXPORT void te_host_group_product(const Work *work, int line) {
  if (!current->entered) {
    complain("line %d: a product of a warpgroup whose sums are still those of thread %u", line, current->number);
    te::fail();
  }
  current->work = work;
  void *from = __builtin_return_address(0);
  wait_as(kProduct, line);
  if (!te::checking || current->number % kGroup) return;
  reader = from;
  work->chunks(work->a, work->b, look);
  work->chunks(work->a, work->b, hold);
}

// Batches of products that a thread has committed: all but the last few have been waited for behind this; where that is all, its sums are
// its own again.
TE_EXPORT void te_host_group_wait(int allowed) {
  std::vector<Product> kept;
  for (Product &product : products[current->number / kGroup]) {
    if (product.batch + (unsigned)allowed >= current->batches) {
      kept.push_back(product);
      continue;
    }
    if (grid.late) done(product);
    if (te::checking) product.work.chunks(product.work.a, product.work.b, release);
  }
  products[current->number / kGroup] = kept;
  if (allowed) return;
  current->waited = current->batches;
  current->entered = false;
}

// The threads of a warpgroup that have all come to one product go on.
bool te::multiply(unsigned first, unsigned count) {
  unsigned there = 0;
  for (unsigned k = 0; k < count; ++k) there += fibers[first + k].state == kProduct;
  if (there < kGroup) return false;
  const Fiber &f = fibers[first];
  Product product = {*f.work, {}, f.batches};
  for (unsigned k = 0; k < kGroup; ++k) {
    const Fiber &g = fibers[first + k];
    if (g.line != f.line || g.work->run != f.work->run) {
      complain("threads of one warpgroup wait at different products: lines %d and %d", f.line, g.line);
      return false;
    }
    if (g.work->a != f.work->a || g.work->b != f.work->b) {
      complain("line %d: threads %u and %u of one warpgroup describe the factors of their product differently", f.line, f.number, g.number);
      return false;
    }
    product.sums.insert(product.sums.end(), g.work->sums, g.work->sums + g.work->count);
  }
  if (!grid.late) done(product);
  products[first / kGroup].push_back(product);
  for (unsigned k = 0; k < kGroup; ++k) fibers[first + k].state = kReady;
  return true;
}
