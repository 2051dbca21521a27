package shop.startup;

import java.util.function.LongUnaryOperator;
import org.springframework.asm.ClassWriter;
import org.springframework.asm.Label;
import org.springframework.asm.MethodVisitor;
import org.springframework.asm.Opcodes;
import shop.Load;

/**
 * A service of 3000 handlers that has just started: its requests find them interpreted, and the compilers at work.
 * Cured: it calls each until it is compiled before it says that it is ready. The handlers are written as bytecode here,
 * each with constants of its own.
 */
public final class WarmUp {
    private static final int HANDLERS = 3000;
    /** More than C2 waits for: Tier4InvocationThreshold, 5000 (compiler_globals.hpp). */
    private static final int WARM_CALLS = 10_000;

    private static final class Loader extends ClassLoader {
        LongUnaryOperator define(String name, byte[] code) throws ReflectiveOperationException {
            Class<?> type = defineClass(name.replace('/', '.'), code, 0, code.length);
            return (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        }
    }

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        LongUnaryOperator[] handlers = new LongUnaryOperator[HANDLERS];
        Loader loader = new Loader();
        for (int i = 0; i < HANDLERS; i++) {
            handlers[i] = loader.define("shop/startup/Handler" + i, handler("shop/startup/Handler" + i, i));
        }
        if (!sick) {
            for (LongUnaryOperator handler : handlers) {
                for (int call = 0; call < WARM_CALLS; call++) {
                    Load.sink += handler.applyAsLong(call);
                }
            }
            waitForCompilers();
        }
        try (java.net.ServerSocket ready = new java.net.ServerSocket(8080)) {
            Load.run("web", 1, n -> Load.sink += handle(handlers, n));
            Thread.currentThread().join();
        }
    }

    private static long handle(LongUnaryOperator[] handlers, long n) {
        return handlers[(int) (n % HANDLERS)].applyAsLong(n);
    }

    private static void waitForCompilers() throws InterruptedException {
        java.lang.management.CompilationMXBean jit = java.lang.management.ManagementFactory.getCompilationMXBean();
        for (long before = -1; jit.getTotalCompilationTime() != before; ) {
            before = jit.getTotalCompilationTime();
            Thread.sleep(500);
        }
    }

    /** A class with the method applyAsLong(x): a loop of 10 turns around a dozen operations with constants of its own. */
    private static byte[] handler(String name, int seed) {
        ClassWriter c = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        // Java 5, which needs no stack maps.
        String[] interfaces = {"java/util/function/LongUnaryOperator"};
        c.visit(Opcodes.V1_5, Opcodes.ACC_PUBLIC, name, null, "java/lang/Object", interfaces);
        MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC, "<init>", "()V", null, null);
        m.visitCode();
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitMethodInsn(Opcodes.INVOKESPECIAL, "java/lang/Object", "<init>", "()V", false);
        m.visitInsn(Opcodes.RETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        m = c.visitMethod(Opcodes.ACC_PUBLIC, "applyAsLong", "(J)J", null, null);
        m.visitCode();
        m.visitInsn(Opcodes.ICONST_0);
        m.visitVarInsn(Opcodes.ISTORE, 3);
        Label top = new Label();
        m.visitLabel(top);
        for (int i = 0; i < 12; i++) {
            m.visitVarInsn(Opcodes.LLOAD, 1);
            m.visitLdcInsn((seed * 31L + i) | 1);
            m.visitInsn(i % 3 == 0 ? Opcodes.LMUL : i % 3 == 1 ? Opcodes.LXOR : Opcodes.LADD);
            m.visitInsn(Opcodes.DUP2);
            m.visitIntInsn(Opcodes.BIPUSH, 7 + i);
            m.visitInsn(Opcodes.LUSHR);
            m.visitInsn(Opcodes.LXOR);
            m.visitVarInsn(Opcodes.LSTORE, 1);
        }
        m.visitIincInsn(3, 1);
        m.visitVarInsn(Opcodes.ILOAD, 3);
        m.visitIntInsn(Opcodes.BIPUSH, 10);
        m.visitJumpInsn(Opcodes.IF_ICMPLT, top);
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitInsn(Opcodes.LRETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        c.visitEnd();
        return c.toByteArray();
    }
}
