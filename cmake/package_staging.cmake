# Run by cpack when a package's files lie in their folder: what Debian wants in a package and an installed prefix does not have. Its copyright and
# changelogs, man pages packed, the static library without what only a debugger reads.
set(packages_program assay)
set(packages_c_library libassay-c0)
set(packages_development libassay-dev)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, where it is set
foreach(component program c_library development)
  set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  if(NOT EXISTS ${usr})
    continue()
  endif()
  set(package ${packages_${component}})
  set(doc ${usr}/share/doc/${package})
  file(COPY ${CPACK_ASSAY_SOURCE}/packaging/copyright DESTINATION ${doc}
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  file(COPY_FILE ${CPACK_ASSAY_SOURCE}/CHANGELOG.md ${doc}/changelog)
  file(WRITE ${doc}/changelog.Debian
    "assay (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n  * Built from the sources with CPack.\n\n"
    " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${today}\n")
  file(GLOB packed ${doc}/changelog* ${usr}/share/man/man*/*.[0-9])
  foreach(file IN LISTS packed)
    run(gzip -9nf ${file})
    file(CHMOD ${file}.gz PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
  file(GLOB_RECURSE archives ${usr}/lib/*.a)
  foreach(archive IN LISTS archives)
    run(strip --strip-debug --remove-section=.comment --remove-section=.note --enable-deterministic-archives ${archive})
  endforeach()
endforeach()
