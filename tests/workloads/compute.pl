# Compute in Perl: regular expressions, hashes, sorting, string building and eval with die.
# The argument says how often.
use strict;
use warnings;

my $rounds = shift // 1;
my $total = 0;
for my $round (1 .. $rounds) {
    my %seen;
    my $text = join ' ', map { sprintf '%x', $_ * 2654435 % 4096 } 1 .. 5000;
    $seen{$1}++ while $text =~ /([0-9a-f]+)/g;
    for my $word (sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen) {
        $total += length($word) * $seen{$word};
    }
    (my $other = $text) =~ s/([a-f])(\d)/$2$1/g;
    $total += ($other =~ tr/a//);
    for my $i (1 .. 1000) {
        eval { die { code => $i } if $i % 3 == 0; 1 } or $total += $@->{code} % 5;
    }
}
print "$total\n";
