# The tree that `cmake --install` writes. The tree can be moved: its files find one another by paths
# that begin at the file's own folder. The folders below are the defaults; CMAKE_INSTALL_BINDIR, _LIBDIR,
# _INCLUDEDIR, _DATADIR and _MANDIR change them. Without the options REWIRE_BUILD_MOE, _NET and _BENCH the
# tree lacks their files: librewire-moe.so, the net plugin, gpt_train and simgpu.
#
#    bin/rewire, bin/gpt_train    the command; with lib/rewire/simgpu, a program to try the tree with
#    include/rewire               the C interfaces: rewire.h, rewire_moe.h, and what both include
#    lib/rewire/libnccl.so.2      the preloaded file, also as librewire-preload.so, and as libnccl.so
#                                 for programs that open NCCL without a version; needs libc alone
#    lib/rewire/librewire-dlopen.so  preloaded too, for programs that open NCCL by a path; libc alone
#    lib/rewire/librewire.so      the core and the C API of rewire.h
#    lib/rewire/librewire-moe.so  the C API of rewire_moe.h
#    lib/rewire/libnccl-net-rewire.so  NCCL opens it for NCCL_NET_PLUGIN=rewire; needs libc alone
#    lib/rewire/librewire-net.so  the net plugin's core
#    lib/rewire/private           Debian libraries that our libraries and the programs need
#    lib/rewire/runtime           the C++ runtime of the programs in bin
#    lib/rewire/simgpu            the simulated GPU
#    lib/cmake/rewire, lib/pkgconfig   the package (package.cmake)
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
foreach(name BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${name}}")
    message(FATAL_ERROR "CMAKE_INSTALL_${name}=${CMAKE_INSTALL_${name}}: must be a path below the prefix")
  endif()
endforeach()
set(library_folder ${CMAKE_INSTALL_LIBDIR}/rewire)
set(python_folder ${CMAKE_INSTALL_DATADIR}/rewire/python)
file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${library_folder})
file(RELATIVE_PATH to_python /${CMAKE_INSTALL_BINDIR} /${python_folder})
target_compile_definitions(rewire_launcher PRIVATE
  REWIRE_TO_LIBRARIES="${to_libraries}" REWIRE_TO_PYTHON="${to_python}")
set(private "$ORIGIN/${to_libraries}/private")
set(runtime "$ORIGIN/${to_libraries}/runtime")
set(programs rewire)
set(libraries rewire_shared)
set(libc_libraries rewire_preload rewire_dlopen)
set(simulated "")
if(REWIRE_BUILD_MOE)
  list(APPEND libraries rewire_moe_shared)
endif()
if(REWIRE_BUILD_NET)
  list(APPEND libraries rewire_net)
  list(APPEND libc_libraries rewire_net_plugin)
endif()
if(REWIRE_BUILD_BENCH)
  list(APPEND programs gpt_train)
  set(simulated simgpu_cuda simgpu_nccl)
  set_target_properties(simgpu_nccl PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
endif()
# The build tree, which lacks these folders, uses the same rule.
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "${private};${runtime}" BUILD_WITH_INSTALL_RPATH ON)
set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN/private" BUILD_WITH_INSTALL_RPATH ON)
foreach(target ${programs} ${libraries})
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET rewire_needs RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(target ${libraries})
  install(TARGETS ${target} EXPORT ${target} RUNTIME_DEPENDENCY_SET rewire_needs
    LIBRARY DESTINATION ${library_folder})
endforeach()
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|nccl)\\.so"
  LIBRARY DESTINATION ${library_folder}/private)
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_INCLUDE_REGEXES "^lib(stdc\\+\\+|gcc_s)\\.so" PRE_EXCLUDE_REGEXES ".*"
  LIBRARY DESTINATION ${library_folder}/runtime)

install(TARGETS ${libc_libraries} LIBRARY DESTINATION ${library_folder} NAMELINK_SKIP)
foreach(link librewire-preload.so libnccl.so)
  install(CODE "file(CREATE_LINK libnccl.so.2
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${library_folder}/${link}\" SYMBOLIC)")
endforeach()
if(simulated)
  install(TARGETS ${simulated} LIBRARY DESTINATION ${library_folder}/simgpu)
endif()
set(without "")
install(DIRECTORY reconfig/python/rewire DESTINATION ${python_folder} FILES_MATCHING PATTERN "*.py")
if(NOT REWIRE_BUILD_MOE)
  set(without PATTERN rewire_moe.h EXCLUDE)
endif()
install(DIRECTORY reconfig/include/rewire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${without})
install(FILES docs/man/rewire.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
