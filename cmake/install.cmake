# The tree that `cmake --install` writes. The tree can be moved: its files find one another.
#
#    bin/rewire, bin/gpt_train    the command; with lib/rewire/simgpu, a program to try the tree with
#    include/rewire               the C interface: rewire.h, rewire_moe.h, and what both include
#    lib/rewire/libnccl.so.2      the preloaded file, also as librewire-preload.so; needs libc alone
#    lib/rewire/librewire.so      the core and the C API
#    lib/rewire/libnccl-net-rewire.so  NCCL opens it for NCCL_NET_PLUGIN=rewire; needs libc alone
#    lib/rewire/librewire-net.so  the net plugin's core
#    lib/rewire/private           Debian libraries that librewire.so and the programs need
#    lib/rewire/runtime           the C++ runtime of the programs in bin
#    lib/rewire/simgpu            the simulated GPU
#    share/man/man1/rewire.1      the manual page of the command
#    share/rewire/python          the Python package
#
# lib/rewire is on the library path of every member, so it holds no file that another program could
# take for a library of its system. For the same reason librewire.so uses the C++ runtime of the
# training process. If our runtime were found first, libraries loaded later that need a newer
# runtime would fail. Debian's Abseil is safe: its functions are in a namespace of Debian's own.
# Debian's static Abseil libraries are built for programs and cannot be part of a shared library.
#
# The libraries are found by DT_RPATH. Unlike DT_RUNPATH, DT_RPATH also applies to dependencies of
# the libraries, and it comes before LD_LIBRARY_PATH.
set(private "$ORIGIN/../lib/rewire/private")
set(runtime "$ORIGIN/../lib/rewire/runtime")
set_target_properties(rewire gpt_train PROPERTIES INSTALL_RPATH "${private};${runtime}")
set_target_properties(rewire_shared rewire_net PROPERTIES INSTALL_RPATH "$ORIGIN/private")
set_target_properties(simgpu_nccl PROPERTIES INSTALL_RPATH "$ORIGIN")
# The build tree, which lacks these folders, uses the same rule.
set_target_properties(rewire gpt_train rewire_shared rewire_net simgpu_nccl PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
foreach(name rewire gpt_train rewire_shared rewire_net)
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS rewire gpt_train RUNTIME_DEPENDENCY_SET rewire_needs RUNTIME DESTINATION bin)
install(TARGETS rewire_shared rewire_net RUNTIME_DEPENDENCY_SET rewire_needs
  LIBRARY DESTINATION lib/rewire)
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|nccl)\\.so"
  LIBRARY DESTINATION lib/rewire/private)
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_INCLUDE_REGEXES "^lib(stdc\\+\\+|gcc_s)\\.so" PRE_EXCLUDE_REGEXES ".*"
  LIBRARY DESTINATION lib/rewire/runtime)

install(TARGETS rewire_preload LIBRARY DESTINATION lib/rewire NAMELINK_SKIP)
install(TARGETS rewire_net_plugin LIBRARY DESTINATION lib/rewire)
install(CODE "file(CREATE_LINK libnccl.so.2
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/rewire/librewire-preload.so\" SYMBOLIC)")
install(TARGETS simgpu_cuda simgpu_nccl LIBRARY DESTINATION lib/rewire/simgpu)
install(DIRECTORY reconfig/include/rewire DESTINATION include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY reconfig/python/rewire DESTINATION share/rewire/python FILES_MATCHING PATTERN "*.py")
install(FILES docs/man/rewire.1 DESTINATION share/man/man1)
