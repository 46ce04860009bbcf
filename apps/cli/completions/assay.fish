# Completion of `assay` for fish. Commands and flags are asked from the program itself, so that they are always its own.
function __assay_commands
    assay --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1\t\2/p'
end
function __assay_flags
    set -l words (commandline -opc)
    test (count $words) -ge 2; and assay $words[2] --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n'
end
complete -c assay -n 'test (count (commandline -opc)) -eq 1' -f -a '(__assay_commands)'
complete -c assay -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__assay_flags)'
complete -c assay -n 'string match -q -- --against (commandline -opc)[-1]' -a 'exact/15 exact/8 f32 oracle reference avx2 avx512 neon neon-i8mm cpu cuda'
