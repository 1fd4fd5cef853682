#include "shim/preload/unknown_functions.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "shim/preload/library_search.h"

namespace rewire::shim {

namespace {

// The exported symbols of a loaded object. The loader has relocated the addresses.
struct Symbols {
  const ElfW(Sym) * all = nullptr;
  const char* names = nullptr;
  const uint32_t* gnu_hash = nullptr;
};

Symbols Find(const ElfW(Dyn) * dynamic) {
  Symbols symbols;
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    const auto* address = reinterpret_cast<const void*>(d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) symbols.all = static_cast<const ElfW(Sym)*>(address);
    if (d->d_tag == DT_STRTAB) symbols.names = static_cast<const char*>(address);
    if (d->d_tag == DT_GNU_HASH) symbols.gnu_hash = static_cast<const uint32_t*>(address);
  }
  return symbols;
}

// Symbols [first, end) are the exported ones. No entry of an ELF file has their number: it follows
// from the hash table (header, Bloom filter, buckets, chains; a chain's last word is odd).
struct Range {
  uint32_t first = 0;
  uint32_t end = 0;
};

Range Exported(const uint32_t* gnu_hash) {
  const uint32_t bucket_count = gnu_hash[0];
  const uint32_t first = gnu_hash[1];
  const uint32_t bloom_words = gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* buckets = gnu_hash + 4 + bloom_words;
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t b = 0; b < bucket_count; ++b) last = std::max(last, buckets[b]);
  if (last < first) return {first, first};
  while ((chains[last - first] & 1) == 0) ++last;
  return {first, last + 1};
}

bool Known(std::string_view name) {
#define REWIRE_NCCL_FUNCTION(result, known, since, parameters, arguments) \
  if (name == "nccl" #known) return true;
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
  return false;
}

bool LooksPublic(std::string_view name) {
  constexpr std::string_view kInternal = "Internal";
  if (name.size() < 5 || name.substr(0, 4) != "nccl" || name[4] < 'A' || name[4] > 'Z') {
    return false;
  }
  return name.size() < kInternal.size() || name.substr(name.size() - kInternal.size()) != kInternal;
}

// Returns the address of a table of a loaded object. glibc relocates it in place, except in the
// vdso.
template <typename Table>
const Table* At(const dl_phdr_info& info, ElfW(Addr) address) {
  if (address < info.dlpi_addr) address += info.dlpi_addr;
  return reinterpret_cast<const Table*>(address);
}

// The calls that an object binds at their first use.
struct LateCalls {
  const ElfW(Rela) * first = nullptr;
  size_t bytes = 0;
  bool needs_nccl = false;
};

bool HasUnknownCall(const dl_phdr_info& info, const ElfW(Dyn) * dynamic) {
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_SYMTAB) symbols = At<ElfW(Sym)>(info, d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) names = At<char>(info, d->d_un.d_ptr);
  }
  if (symbols == nullptr || names == nullptr) return false;
  LateCalls calls;
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_JMPREL) calls.first = At<ElfW(Rela)>(info, d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) calls.bytes = d->d_un.d_val;
    if (d->d_tag == DT_PLTREL && d->d_un.d_val != DT_RELA) return false;
    if (d->d_tag == DT_NEEDED && strcmp(names + d->d_un.d_val, kNcclSoname) == 0) {
      calls.needs_nccl = true;
    }
  }
  if (!calls.needs_nccl || calls.first == nullptr) return false;
  for (size_t i = 0; i < calls.bytes / sizeof *calls.first; ++i) {
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(calls.first[i].r_info)];
    const char* name = names + symbol.st_name;
    if (symbol.st_shndx != SHN_UNDEF) continue;
    if (name[0] == 'p') ++name;  // a profiling name
    if (LooksPublic(name) && !Known(name)) return true;
  }
  return false;
}

}  // namespace

bool UnknownFunctionNeeded() {
  const auto visit = [](dl_phdr_info* info, size_t, void*) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      const ElfW(Addr) address = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      if (HasUnknownCall(*info, reinterpret_cast<const ElfW(Dyn)*>(address))) return 1;
    }
    return 0;
  };
  return dl_iterate_phdr(visit, nullptr) != 0;
}

std::vector<std::string> UnknownFunctions(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  const Symbols symbols = Find(map->l_ld);
  if (symbols.all == nullptr || symbols.names == nullptr || symbols.gnu_hash == nullptr) return {};
  std::vector<std::string> unknown;
  const Range exported = Exported(symbols.gnu_hash);
  for (uint32_t i = exported.first; i < exported.end; ++i) {
    const ElfW(Sym)& symbol = symbols.all[i];
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
    const char* name = symbols.names + symbol.st_name;
    if (LooksPublic(name) && !Known(name)) unknown.emplace_back(name);
  }
  return unknown;
}

}  // namespace rewire::shim
