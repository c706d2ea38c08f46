"""The tables of a changefeed in the catalog: what each holds, lacks, and takes."""
